import type { Resumable } from '../algorithms/channel.ts'
import { flatBytes } from '../algorithms/flat.ts'
import type { Operation } from '../operation.ts'
import type {
  GroupFacts,
  RunningOperation,
  TransportCollectives,
} from '../transports/transport-collectives.ts'
import type { Transport } from '../transports/transport.ts'
import type { Engine } from './engine.ts'
import { FlatRun, type FlatContext, type Lane } from './flat-run.ts'

/** On the transport's board, if it has one. */
export function openFlatCollectives(
  { rank, kernels }: Pick<Engine, 'rank' | 'kernels'>,
  transport: Transport | undefined,
  onMismatch: FlatContext['onMismatch'],
): TransportCollectives | undefined {
  const board = transport?.board
  if (board === undefined) return undefined
  const waiting: FlatRun[] = []
  const onWait = (run: FlatRun): void => {
    waiting.push(run)
  }
  return new FlatCollectives(waiting, { board, rank, kernels, onWait, onMismatch })
}

/**
 * Runs small collectives on boards. The first groups of a world have a lane each, for good: ids of
 * groups are given once, so no lane ever changes hands.
 */
class FlatCollectives implements TransportCollectives {
  readonly #context: FlatContext
  readonly #waiting: FlatRun[]
  readonly #lanes: readonly Lane[]

  constructor(waiting: FlatRun[], context: FlatContext) {
    this.#waiting = waiting
    this.#context = context
    this.#lanes = Array.from({ length: context.board.lanes }, (_, index) => ({
      index,
      given: 0,
      over: 0,
      unchecked: undefined,
    }))
  }

  take(operation: Operation, group: GroupFacts): Operation | undefined {
    const { board, rank } = this.#context
    const { algorithm, isReserved } = operation
    const { id, layout, ranks } = group
    if (algorithm !== 'auto' || isReserved || id >= board.lanes || layout !== 'together') {
      return undefined
    }
    const bytes = flatBytes(operation, ranks.length)
    if (bytes === undefined || bytes > board.slotBytes) return undefined
    if (!ranks.every((peer) => peer === rank || board.reaches(peer))) return undefined
    return { ...operation, algorithm: 'flat' }
  }

  run(task: RunningOperation): Resumable {
    return new FlatRun(this.#context, task, this.#lanes[task.group.id]!)
  }

  progress(): boolean {
    let moved = false
    for (let i = this.#waiting.length - 1; i >= 0; i--) {
      const run = this.#waiting[i]!
      const isRunning = run.task.state === 'running'
      if (isRunning && !run.done) continue
      this.#waiting.splice(i, 1)
      if (!isRunning) continue
      moved = true
      run.task.resume(run)
    }
    return moved
  }
}
