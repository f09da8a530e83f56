import { monotonicNow, type TsrError } from '@tsrun/core'
import { yieldCore } from '@tsrun/native'
import { NO_PEER } from '../../diagnosis/flight-recorder.ts'
import type { Journal } from '../../diagnosis/journal.ts'
import { StatusPublisher } from '../../diagnosis/status-publisher.ts'
import { dtypes } from '../../dtype.ts'
import { isCollective, type Operation } from '../../operation.ts'
import type { Ticket, TicketDriver } from '../../ticket.ts'
import type { LocalPlace } from '../../transports/transport.ts'
import { Placement } from '../placement.ts'
import { LocalGroup, type LocalContext } from './local-group.ts'

/**
 * Milliseconds that a waiting caller tolerates without progress, before it hands its operation to
 * the engine.
 */
const PATIENCE = 0.2
/** Additional milliseconds for each byte of the buffer, because peers may be copying it. */
const PATIENCE_PER_BYTE = 1e-6
/**
 * Milliseconds after which an operation is handed to the engine, if the caller polls it instead of
 * waiting.
 */
const POLLED_PATIENCE = 1

export interface CallingThreadOptions extends LocalContext {
  readonly journal: Journal
  readonly place: LocalPlace | undefined
  /** The driver of operations that are handed to the engine. */
  readonly engine: TicketDriver
}

/**
 * Runs collectives of ranks that share memory on the calling thread. A rank publishes its buffer
 * when it calls, and reads the others' buffers when it waits. If all ranks arrive almost together,
 * no thread is woken. Operations that take longer are handed to the engine. Mismatched operations
 * are handed over as well, because the engine reports which rank runs what.
 */
export class CallingThread implements TicketDriver {
  readonly #options: CallingThreadOptions
  readonly #groups: (LocalGroup | undefined)[] = []
  readonly #placement: Placement | undefined
  readonly #status: StatusPublisher | undefined

  constructor(options: CallingThreadOptions) {
    const { journal, place } = options
    this.#options = options
    this.#placement = place && Placement.of(place)
    this.#status = journal.status && new StatusPublisher(journal.status, 'caller')
  }

  addGroup(id: number, name: string, ranks: readonly number[]): void {
    const { slots, rank } = this.#options
    const isReached = ranks.every((peer) => peer === rank || slots.reaches(peer))
    if (ranks.length < 2 || id >= slots.groups || !isReached) return
    this.#groups[id] = new LocalGroup(this.#options, id, name, ranks)
  }

  removeGroup(id: number): void {
    this.#flush(this.#groups[id])
    this.#groups[id] = undefined
  }

  /** Whether the ranks of a group share memory. */
  reaches(group: number): boolean {
    return this.#groups[group] !== undefined
  }

  /**
   * Whether this thread runs an operation, provided that its group is idle. A large operation makes
   * progress only while its caller waits, and until then delays the other ranks. It therefore runs
   * here only if the caller waits at once.
   */
  runs(operation: Operation, isAwaited: boolean): boolean {
    if (!isCollective(operation)) return false
    const run = this.#groups[operation.group]?.runOf(operation)
    return run !== undefined && (isAwaited || !run.isLarge)
  }

  /**
   * Finishes the pending operation of a group, or hands it to the engine. Called before a later
   * operation starts.
   */
  flushBefore(operation: Operation): void {
    if (isCollective(operation)) this.#flush(this.#groups[operation.group])
  }

  /**
   * Starts an operation on this thread.
   * @param operation - one for which `runs` has returned true
   */
  start(ticket: Ticket, operation: Operation): void {
    const group = this.#groups[operation.group]!
    const run = group.runOf(operation)!
    this.#flush(group)
    if (!group.begin(ticket, operation, run)) {
      this.#options.engine.start(ticket, operation)
      return
    }
    ticket.begin(this, operation)
    const posted = (ticket.posted = monotonicNow())
    const { fingerprint } = run.running
    const begun = {
      operation,
      fingerprint,
      group,
      posted,
      peer: NO_PEER,
      bytes: bytesOf(operation),
    }
    this.#options.journal.recorder.start(begun, 'running')
    this.#status?.onStart(begun)
    run.publish()
    if (run.isLarge) this.#proceed(ticket)
  }

  /** Does nothing: operations here make progress only while the caller polls or waits. */
  collect(): void {
    return undefined
  }

  poll(ticket: Ticket): void {
    if (!this.#proceed(ticket) && monotonicNow() - ticket.posted > POLLED_PATIENCE) {
      this.#leave(ticket)
    }
    if (ticket.driver !== this) ticket.poll()
  }

  spinBriefly(ticket: Ticket): void {
    this.#endSoon(ticket, true)
    if (ticket.driver !== this) ticket.spinBriefly()
  }

  block(ticket: Ticket, operation: string): void {
    this.#endSoon(ticket, true)
    if (ticket.driver !== this) ticket.block(operation)
  }

  notify(ticket: Ticket, callback: () => void, isAwaited: boolean): void {
    this.#endSoon(ticket, isAwaited)
    ticket.onSettled(callback, isAwaited)
  }

  abort(ticket: Ticket): void {
    this.#endSoon(ticket, false)
    ticket.abort()
  }

  /**
   * Completes the operation if all ranks arrive soon. Otherwise hands the operation to the engine.
   */
  #endSoon(ticket: Ticket, isAwaited: boolean): void {
    if (this.#proceed(ticket)) return
    if (!isAwaited || !this.#wait(ticket)) this.#leave(ticket)
  }

  /**
   * Yields the core until the operation ends. Returns false if the operation makes no progress for
   * too long.
   */
  #wait(ticket: Ticket): boolean {
    const run = this.#groups[ticket.operation.group]!.run!
    let { begun } = run
    let start = monotonicNow()
    const patience = PATIENCE + bytesOf(ticket.operation) * PATIENCE_PER_BYTE
    for (let now = start; now - start < patience; now = monotonicNow()) {
      yieldCore()
      this.#placement?.onYield(now)
      if (this.#proceed(ticket)) return true
      if (run.begun === begun) continue
      begun = run.begun
      start = now
    }
    return false
  }

  /**
   * Makes progress with an operation. Returns true once the operation has ended or was handed to
   * the engine.
   */
  #proceed(ticket: Ticket): boolean {
    const { operation, posted } = ticket
    const group = this.#groups[operation.group]
    if (group?.current !== ticket) return true
    if (!group.run!.proceed()) {
      // The ranks run different operations. Let the engine report which rank runs what.
      if (group.differs) this.#leave(ticket)
      return group.differs
    }
    group.end()
    const completed = monotonicNow()
    ticket.settle(undefined, posted, posted, completed)
    this.#options.journal.recorder.end(operation.flight, posted, completed, undefined)
    this.#status?.onSettled({ operation, posted, completed, started: undefined })
    return true
  }

  /** Hands the pending operation of a group to the engine, unless the operation can end now. */
  #flush(group: LocalGroup | undefined): void {
    const ticket = group?.current
    if (ticket !== undefined && !this.#proceed(ticket)) this.#leave(ticket)
  }

  #leave(ticket: Ticket): void {
    const { operation, posted } = ticket
    const group = this.#groups[operation.group]!
    const { begun } = group.run!
    group.end()
    try {
      this.#options.engine.start(ticket, { ...operation, begun })
    } catch (error) {
      ticket.settle(error as TsrError, posted, posted, monotonicNow())
    }
  }
}

function bytesOf({ count, dtype }: Operation): number {
  return count * dtypes[dtype].bytes
}
