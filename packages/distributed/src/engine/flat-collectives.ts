import { flatBytes } from '../algorithms/flat.ts'
import type { Transport } from '../transports/transport.ts'
import type { Engine } from './engine.ts'
import type { Failures } from './failures.ts'
import { FlatRun, type FlatContext, type Lane } from './flat-run.ts'
import { spaces } from './frame.ts'
import { hasLeft, type EngineGroup } from './group.ts'
import type { Operation } from './operation.ts'
import { peerError } from './task-errors.ts'
import type { Resumable, Task, Waited } from './task.ts'
import type { TransportCollectives } from './transport-collectives.ts'

/** On the transport's board, if it has one. */
export function openFlatCollectives(
  engine: Pick<Engine, 'rank' | 'links' | 'kernels'>,
  transport: Transport | undefined,
  failures: Pick<Failures, 'onMismatch'>,
): TransportCollectives | undefined {
  const board = transport?.board
  if (board === undefined) return undefined
  const { rank, links, kernels } = engine
  const waiting: FlatRun[] = []
  return new FlatCollectives(waiting, {
    board,
    rank,
    kernels,
    onWait: (run) => {
      const { task } = run
      for (const peer of run.missing()) {
        const link = links[peer]
        if (link !== undefined && hasLeft(task.group, link)) throw peerError(task, link, rank)
      }
      waiting.push(run)
    },
    onMismatch: ({ group, operation }, peer, theirs) => {
      const stream = links[peer]!.stream(spaces.collective, group.id, operation.sequence)
      failures.onMismatch(stream, theirs, undefined)
    },
  })
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

  take(operation: Operation, group: EngineGroup): Operation | undefined {
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

  run(task: Task): Resumable {
    return new FlatRun(this.#context, task, this.#lanes[task.group.id]!)
  }

  progress(wake: (task: Task, waited: Waited) => void): boolean {
    let moved = false
    for (let i = this.#waiting.length - 1; i >= 0; i--) {
      const run = this.#waiting[i]!
      const isRunning = run.task.state === 'running'
      if (isRunning && !run.done) continue
      this.#waiting.splice(i, 1)
      if (!isRunning) continue
      moved = true
      wake(run.task, run)
    }
    return moved
  }
}
