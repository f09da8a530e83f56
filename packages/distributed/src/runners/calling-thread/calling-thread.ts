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

/** Milliseconds without progress after which a caller that waits leaves an operation to the engine. */
const PATIENCE = 0.2
/** Milliseconds for each byte that others may be copying meanwhile. */
const PATIENCE_PER_BYTE = 1e-6
/** Milliseconds after which an operation that is only polled is left to the engine. */
const POLLED_PATIENCE = 1

export interface CallingThreadOptions extends LocalContext {
  readonly journal: Journal
  readonly place: LocalPlace | undefined
  /** Runs what is left to the engine. */
  readonly engine: TicketDriver
}

/**
 * Runs collectives of ranks that share memory on the calling thread: a rank publishes its buffer at the
 * call, and takes what it needs when it waits. While the ranks come within a moment of each other, the
 * engine does nothing and no thread is woken. What takes longer, or meets anything else than what it
 * expects, is left to the engine, which also finds out what is wrong.
 */
export class CallingThread implements TicketDriver {
  readonly #options: CallingThreadOptions
  /** By id. */
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
   * Whether it runs an operation, or would if the group were idle. A large one moves only while its caller
   * waits, which holds up the others, so it has to wait at once.
   */
  runs(operation: Operation, isAwaited: boolean): boolean {
    if (!isCollective(operation)) return false
    const run = this.#groups[operation.group]?.runOf(operation)
    return run !== undefined && (isAwaited || !run.isLarge)
  }

  /** The engine is about to be handed an operation: what is under way here comes before it. */
  flushBefore(operation: Operation): void {
    if (isCollective(operation)) this.#flush(this.#groups[operation.group])
  }

  /** @param operation - one that it runs */
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

  /** Nothing ends here by itself. */
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

  /** Ends it here if the others come within a moment; else the engine has it. */
  #endSoon(ticket: Ticket, isAwaited: boolean): void {
    if (this.#proceed(ticket)) return
    if (!isAwaited || !this.#wait(ticket)) this.#leave(ticket)
  }

  /** Gives the core to others until it proceeds, for a moment; returns whether it is not here any more. */
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

  /** Continues; returns whether it is not here any more: it has ended, or the engine has it. */
  #proceed(ticket: Ticket): boolean {
    const { operation, posted } = ticket
    const group = this.#groups[operation.group]
    if (group?.current !== ticket) return true
    if (!group.run!.proceed()) {
      // The ranks run different things: the engine finds out who runs what.
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

  /** Leaves what is under way to the engine, if it is not over now. */
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
