import type { Resumable } from '../algorithms/channel.ts'
import type { Operation } from '../operation.ts'
import { chooseShared, type SharedContext } from '../shared/choose.ts'
import { Epochs } from '../shared/epochs.ts'
import { FlatRun } from '../shared/flat-run.ts'
import { WindowRun } from '../shared/window-run.ts'
import type {
  GroupFacts,
  RunningOperation,
  TransportCollectives,
} from '../transports/transport-collectives.ts'

/** Runs the collectives of ranks that share memory without messages. */
export class SharedCollectives implements TransportCollectives {
  readonly #context: SharedContext
  /**
   * The epochs of each group, by id. Ids are never reused, so two groups never use the same slots.
   */
  readonly #epochs: readonly Epochs[]

  constructor(context: SharedContext) {
    this.#context = context
    const { slots, epochs } = context
    this.#epochs = Array.from(
      { length: slots.exposingGroups },
      (_, group) => new Epochs(epochs, group),
    )
  }

  take(operation: Operation, group: GroupFacts): Operation | undefined {
    const algorithm = chooseShared(operation, group, this.#context)
    return algorithm && { ...operation, algorithm }
  }

  run(running: RunningOperation): Resumable {
    const Run = running.operation.algorithm === 'flat' ? FlatRun : WindowRun
    const run = new Run(this.#context, this.#epochs[running.group.id]!, running)
    run.restart()
    return run
  }

  progress(): boolean {
    const { waiting, slots } = this.#context
    let moved = false
    for (let i = waiting.length - 1; i >= 0; i--) {
      const run = waiting[i]!
      const isRunning = run.running.state === 'running'
      if (isRunning && !run.done) continue
      waiting.splice(i, 1)
      if (!isRunning) continue
      moved = true
      run.running.resume(run)
    }
    slots.isAwaited = waiting.length > 0
    return moved
  }
}
