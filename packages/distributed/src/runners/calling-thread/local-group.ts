import { WINDOW_SCRATCH } from '../../algorithms/window.ts'
import type { Arena } from '../../arena/arena.ts'
import { layoutOf } from '../../engine/group.ts'
import { fingerprintOf, type Operation } from '../../operation.ts'
import { chooseShared, type SharedContext } from '../../shared/choose.ts'
import type { EpochRun } from '../../shared/epoch-run.ts'
import type { Epochs } from '../../shared/epochs.ts'
import { FlatRun } from '../../shared/flat-run.ts'
import { WindowRun } from '../../shared/window-run.ts'
import type { Ticket } from '../../ticket.ts'
import type { GroupFacts } from '../../transports/transport.ts'

export interface LocalContext extends Omit<SharedContext, 'waiting' | 'onMismatch'> {
  readonly arena: Arena
  /** The host number of each world rank, from `Transport.hosts`. */
  readonly hosts: readonly number[]
  /** Whether the engine has read all commands and can make progress without this thread. */
  readonly isIdle: () => boolean
}

interface Known {
  of: Operation
  readonly run: EpochRun | undefined
}

/**
 * Runs the operations of a group on the calling thread, one at a time, while the engine runs none. The
 * ranks of the group share slots.
 */
export class LocalGroup {
  readonly name: string
  readonly ranks: readonly number[]
  readonly isReached: boolean
  readonly epochs: Epochs
  readonly #local: LocalContext
  readonly #shared: SharedContext
  readonly #facts: GroupFacts
  /**
   * For each operation: its last call, and the `EpochRun` that can repeat the call. The run is
   * undefined if the engine must run the call.
   */
  readonly #known: Known[] = []
  current: Ticket | undefined
  run: EpochRun | undefined
  /** Whether a peer runs another operation in the current epoch. */
  differs = false
  /** Heap offsets of the scratch memory for large operations, and of its free part. */
  #scratch = 0
  #free = 0

  constructor(
    local: LocalContext,
    epochs: Epochs,
    id: number,
    name: string,
    ranks: readonly number[],
  ) {
    this.name = name
    this.ranks = ranks
    this.epochs = epochs
    const { slots, rank } = local
    this.isReached = ranks.every((peer) => peer === rank || slots.reaches(peer))
    this.#local = local
    const onMismatch = (): void => {
      this.differs = true
    }
    this.#shared = { ...local, waiting: [], onMismatch }
    const layout = layoutOf(ranks.map((peer) => local.hosts[peer]!))
    this.#facts = { id, rank: ranks.indexOf(local.rank), ranks, layout }
  }

  /** Returns the run for an operation. Returns undefined if the engine must run the operation. */
  runOf(operation: Operation): EpochRun | undefined {
    const known = this.#known
    // A repeated call is found without comparing its fields.
    for (const { of, run } of known) if (of === operation) return run
    const index = known.findIndex(({ of }) => of.name === operation.name)
    const last = known[index]
    if (last !== undefined && isAlike(last.of, operation)) {
      last.of = operation
      return last.run
    }
    const run = this.#newRunOf(operation)
    known[index < 0 ? known.length : index] = { of: operation, run }
    return run
  }

  /**
   * Begins the next epoch with an operation. Returns false if the engine must run the operation: for
   * example, if other ranks have not entered the previous epoch, and the caller does not wait.
   */
  begin(ticket: Ticket, run: EpochRun, operation: Operation, isAwaited: boolean): boolean {
    if (this.epochs.over !== this.epochs.given) return false
    if (run.isLarge && !this.#takeScratch()) return false
    this.current = ticket
    this.run = run
    run.restart(operation)
    if (run.enter() || (isAwaited && !this.differs)) return true
    this.end()
    return false
  }

  #takeScratch(): boolean {
    try {
      this.#scratch = this.#free = this.#local.arena.allocBytes(WINDOW_SCRATCH)
      return true
    } catch {
      return false
    }
  }

  /** Makes progress. Returns whether the current operation has completed. */
  proceed(): boolean {
    const run = this.run!
    return (run.begun > 0 || run.enter()) && run.proceed()
  }

  /** Ends the current operation, and frees its scratch memory. */
  end(): void {
    // Return the unused epoch, so that the engine can use it for this operation.
    if (this.run!.begun === 0) this.epochs.given = (this.epochs.given - 1) | 0
    if (this.#scratch !== 0) this.#local.arena.releaseBytes(this.#scratch)
    this.#scratch = 0
    this.current = this.run = undefined
    this.differs = false
  }

  #newRunOf(operation: Operation): EpochRun | undefined {
    const algorithm = chooseShared(operation, this.#facts, this.#shared)
    if (algorithm === undefined) return undefined
    const running = {
      operation,
      group: this.#facts,
      fingerprint: fingerprintOf({ ...operation, algorithm }),
      state: 'running' as const,
      started: 1,
      scratch: (bytes: number) => (this.#free += bytes) - bytes,
      resume: () => undefined,
    }
    if (algorithm === 'window') {
      return this.#local.get && new WindowRun(this.#shared, this.epochs, running)
    }
    return new FlatRun(this.#shared, this.epochs, running)
  }
}

/** Whether two calls of one operation can use the same `EpochRun`. */
function isAlike(a: Operation, b: Operation): boolean {
  return (
    a.count === b.count &&
    a.dtype === b.dtype &&
    a.reduction === b.reduction &&
    a.peer === b.peer &&
    a.algorithm === b.algorithm &&
    a.isReserved === b.isReserved
  )
}
