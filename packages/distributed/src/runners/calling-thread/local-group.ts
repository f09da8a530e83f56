import { WINDOW_SCRATCH } from '../../algorithms/window.ts'
import type { Arena } from '../../arena/arena.ts'
import { dtypes } from '../../dtype.ts'
import { layoutOf } from '../../engine/group.ts'
import { fingerprintOf, type Operation, type OperationName } from '../../operation.ts'
import { chooseShared, type SharedContext } from '../../shared/choose.ts'
import type { EpochRun } from '../../shared/epoch-run.ts'
import { Epochs } from '../../shared/epochs.ts'
import { FlatRun } from '../../shared/flat-run.ts'
import { WindowRun } from '../../shared/window-run.ts'
import type { Ticket } from '../../ticket.ts'
import type { GroupFacts } from '../../transports/transport-collectives.ts'

export interface LocalContext extends Omit<SharedContext, 'waiting' | 'onMismatch'> {
  readonly arena: Arena
  /** The host number of each world rank, from `Transport.hosts`. */
  readonly hosts: readonly number[]
  /** Whether the engine has read all commands and can make progress without this thread. */
  readonly isIdle: () => boolean
}

/**
 * Runs the operations of a group on the calling thread, one at a time, while the engine runs none. The
 * ranks of the group share slots.
 */
export class LocalGroup {
  readonly name: string
  readonly #local: LocalContext
  readonly #shared: SharedContext
  readonly #facts: GroupFacts
  readonly #epochs: Epochs
  /**
   * For each operation name: the last call, and the run for calls like that one. The run is
   * undefined if the engine must run such calls.
   */
  readonly #known = new Map<OperationName, { of: Operation; run: EpochRun | undefined }>()
  current: Ticket | undefined
  run: EpochRun | undefined
  /** Whether a peer runs another operation in the current epoch. */
  differs = false
  /** Heap offsets of the scratch memory for large operations, and of its free part. */
  #scratch = 0
  #free = 0

  constructor(local: LocalContext, id: number, name: string, ranks: readonly number[]) {
    this.name = name
    this.#local = local
    const onMismatch = (): void => {
      this.differs = true
    }
    this.#shared = { ...local, waiting: [], onMismatch }
    const layout = layoutOf(ranks.map((peer) => local.hosts[peer]!))
    this.#facts = { id, rank: ranks.indexOf(local.rank), ranks, layout }
    this.#epochs = new Epochs(local.epochs, id)
  }

  /** Returns the run for an operation. Returns undefined if the engine must run the operation. */
  runOf(operation: Operation): EpochRun | undefined {
    const known = this.#known.get(operation.name)
    if (known !== undefined && isAlike(known.of, operation)) return known.run
    const run = this.#newRunOf(operation)
    this.#known.set(operation.name, { of: operation, run })
    return run
  }

  /**
   * Begins the next epoch with an operation. Returns false if the engine must run the operation.
   */
  begin(ticket: Ticket, operation: Operation, run: EpochRun): boolean {
    const { arena, isIdle, slots, rank } = this.#local
    const { id, ranks } = this.#facts
    const epochs = this.#epochs
    // Check isIdle first: the epochs are up to date only once the engine has read all commands.
    if (operation.aborted || !isIdle() || !epochs.isOpen) return false
    const { given } = epochs
    for (const peer of ranks) {
      if (peer !== rank && !slots.hasEntered(peer, id, given, false)) return false
    }
    if (run.isLarge) {
      try {
        this.#scratch = this.#free = arena.allocBytes(WINDOW_SCRATCH)
      } catch {
        return false
      }
    }
    this.current = ticket
    this.run = run
    this.differs = false
    run.restart(operation)
    return true
  }

  /** Ends the current operation, and frees its scratch memory. */
  end(): void {
    if (this.#scratch !== 0) this.#local.arena.releaseBytes(this.#scratch)
    this.#scratch = 0
    this.current = this.run = undefined
  }

  #newRunOf(operation: Operation): EpochRun | undefined {
    const algorithm = chooseShared(operation, this.#facts, this.#shared)
    if (algorithm === undefined) return undefined
    const running = {
      operation,
      group: this.#facts,
      fingerprint: fingerprintOf({ ...operation, algorithm }, dtypes[operation.dtype].code),
      state: 'running' as const,
      started: 1,
      scratch: (bytes: number) => (this.#free += bytes) - bytes,
      resume: () => undefined,
    }
    if (algorithm === 'window') {
      return this.#local.get && new WindowRun(this.#shared, this.#epochs, running)
    }
    const run = new FlatRun(this.#shared, this.#epochs, running)
    // Leave other runs to the engine. A rank that waits for at most one peer would end before it
    // has compared the calls of all ranks.
    return run.comparesAll ? run : undefined
  }
}

/** Whether two calls of an operation are alike, so that they can use the same run. */
function isAlike(a: Operation, b: Operation): boolean {
  return (
    a === b ||
    (a.count === b.count &&
      a.dtype === b.dtype &&
      a.reduction === b.reduction &&
      a.factor === b.factor &&
      a.peer === b.peer &&
      a.algorithm === b.algorithm &&
      a.isReserved === b.isReserved)
  )
}
