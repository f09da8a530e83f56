import { chooseWithoutMessages } from '../algorithms/select.ts'
import type { Resumable } from '../algorithms/channel.ts'
import type { Operation } from '../operation.ts'
import type {
  GroupFacts,
  RunningOperation,
  TransportCollectives,
} from '../transports/transport-collectives.ts'
import type { SharedSlots } from '../transports/shared-slots.ts'
import type { EpochRun, SharedContext } from './epoch.ts'
import { Epochs } from './epochs.ts'
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
    this.#context.slots.isAwaited = this.#waiting.length > 0
    return moved
  }

  onGroupFailed(id: number): void {
    this.#epochs[id]?.fail()
  }
}

/** How ranks run an operation on shared memory; undefined where they exchange messages. */
export function chooseShared(
  operation: Operation,
  { id, layout, ranks }: GroupFacts,
  { slots, rank, tuning }: Pick<SharedContext, 'rank' | 'tuning'> & { readonly slots: SharedSlots },
): 'flat' | 'window' | undefined {
  if (operation.isReserved || layout !== 'together' || id >= slots.exposingGroups) return undefined
  const slotBytes = id < slots.groups ? slots.slotBytes : -1
  const algorithm = chooseWithoutMessages(operation, ranks.length, slotBytes, tuning)
  const areReached = ranks.every((peer) => peer === rank || slots.reaches(peer))
  return areReached ? algorithm : undefined
}
