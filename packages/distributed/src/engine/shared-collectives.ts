import { chooseWithoutMessages } from '../algorithms/select.ts'
import type { Resumable } from '../algorithms/channel.ts'
import type { Operation } from '../operation.ts'
import type {
  GroupFacts,
  RunningOperation,
  TransportCollectives,
} from '../transports/transport-collectives.ts'
import type { EpochRun, Epochs, SharedContext } from './epoch.ts'
import { FlatRun } from './flat-run.ts'
import { WindowRun } from './window-run.ts'

/** Runs collectives of ranks that share memory on what they publish there, without messages. */
export class SharedCollectives implements TransportCollectives {
  readonly #context: SharedContext
  readonly #waiting: EpochRun[] = []
  /** By group id. Ids are given once, so slots never pass from one group to another. */
  readonly #epochs: readonly Epochs[]

  constructor(context: SharedContext) {
    this.#context = context
    this.#epochs = Array.from({ length: context.slots.exposingGroups }, () => ({
      given: 0,
      over: 0,
      steps: 0,
      unchecked: undefined,
    }))
  }

  take(operation: Operation, group: GroupFacts): Operation | undefined {
    const { slots, rank, tuning } = this.#context
    const { id, layout, ranks } = group
    if (operation.isReserved || layout !== 'together' || id >= slots.exposingGroups) {
      return undefined
    }
    const slotBytes = id < slots.groups ? slots.slotBytes : -1
    const algorithm = chooseWithoutMessages(operation, ranks.length, slotBytes, tuning)
    if (algorithm === undefined) return undefined
    if (!ranks.every((peer) => peer === rank || slots.reaches(peer))) return undefined
    return { ...operation, algorithm }
  }

  run(running: RunningOperation): Resumable {
    const of = {
      context: this.#context,
      running,
      epochs: this.#epochs[running.group.id]!,
      waiting: this.#waiting,
    }
    return running.operation.algorithm === 'flat' ? new FlatRun(of) : new WindowRun(of)
  }

  progress(): boolean {
    let moved = false
    for (let i = this.#waiting.length - 1; i >= 0; i--) {
      const run = this.#waiting[i]!
      const isRunning = run.running.state === 'running'
      if (isRunning && !run.done) continue
      this.#waiting.splice(i, 1)
      if (!isRunning) continue
      moved = true
      run.running.resume(run)
    }
    return moved
  }
}
