import { monotonicNow } from '@tsrun/core'
import { yieldCore } from '@tsrun/native'
import { WINDOW_SCRATCH } from '../../algorithms/window.ts'
import type { Arena } from '../../arena/arena.ts'
import type { Journal } from '../../diagnosis/journal.ts'
import { StatusPublisher } from '../../diagnosis/status-page.ts'
import { isCollective, type Operation } from '../../operation.ts'
import type { Ticket } from '../../ticket.ts'
import type { LocalPlace } from '../../transports/transport.ts'
import { Placement } from '../placement.ts'
import { ShortcutGroup, type ShortcutContext } from './group.ts'
import { ShortcutTicket } from './ticket.ts'

/** Milliseconds without progress after which a caller leaves an operation to the engine. */
const PATIENCE = 0.2
/** Milliseconds for each byte that others may be copying meanwhile. */
const PATIENCE_PER_BYTE = 1e-6

export interface ShortcutOptions extends ShortcutContext {
  readonly arena: Arena
  readonly journal: Journal
  readonly place: LocalPlace | undefined
  /** Hands an operation to the engine. */
  readonly submit: (operation: Operation) => Ticket
}

/**
 * Runs small collectives of ranks that share memory on the caller's thread: a rank publishes its buffer
 * at the call, and takes what it needs when it waits. While the ranks come within a moment of each
 * other, the engine does nothing and no thread is woken. What takes longer, or meets anything else than
 * what it expects, is left to the engine, which also finds out what is wrong.
 */
export class Shortcut {
  readonly submit: (operation: Operation) => Ticket
  readonly #context: ShortcutContext
  readonly #arena: Arena
  readonly #journal: Journal
  readonly #groups = new Map<number, ShortcutGroup>()
  readonly #placement: Placement | undefined
  readonly #status: StatusPublisher | undefined

  constructor(options: ShortcutOptions) {
    const { arena, journal, place, submit } = options
    this.#arena = arena
    this.submit = submit
    this.#context = options
    this.#journal = journal
    this.#placement = place && Placement.of(place)
    this.#status = journal.status && new StatusPublisher(journal.status, 'caller')
  }

  addGroup(id: number, name: string, ranks: readonly number[]): void {
    const { slots, rank } = this.#context
    const isReached = ranks.every((peer) => peer === rank || slots.reaches(peer))
    if (ranks.length < 2 || id >= slots.groups || !isReached) return
    this.#groups.set(id, new ShortcutGroup(this.#context, id, name, ranks))
  }

  removeGroup(id: number): void {
    this.#groups.delete(id)
  }

  /**
   * The ticket of an operation that runs here, or would if the group were idle; else undefined. A large
   * one moves only while its caller waits, which holds up the others, so it has to wait at once.
   */
  take(operation: Operation, isAwaited: boolean): Ticket | undefined {
    const group = this.#groups.get(operation.group)
    if (group === undefined || !isCollective(operation)) return undefined
    const form = group.formOf(operation)
    if (form === undefined || (form.plan === undefined && !isAwaited)) return undefined
    return new ShortcutTicket(this, group, operation, form)
  }

  /** Whether it runs here if its caller waits. */
  runs(operation: Operation): boolean {
    return this.#groups.get(operation.group)?.formOf(operation) !== undefined
  }

  /** Whether the ranks of a group share memory. */
  reaches(group: number): boolean {
    return this.#groups.has(group)
  }

  /** The engine is about to be handed an operation: what is on its way here comes before it. */
  makeWayFor(operation: Operation): void {
    if (isCollective(operation)) this.#groups.get(operation.group)?.leaveToEngine()
  }

  /** See `Owner`. */
  onStart(ticket: ShortcutTicket): void {
    this.#journal.recorder.start(ticket, 'running')
    this.#status?.onStart(ticket)
  }

  /** See `Owner`. */
  onDone({ operation, posted, completed }: ShortcutTicket): void {
    this.#journal.recorder.end(operation.flight, posted, completed, undefined)
    this.#status?.onSettled({ operation, posted, completed, started: undefined })
  }

  /** See `Owner`. */
  takeScratch(): number | undefined {
    try {
      return this.#arena.allocBytes(WINDOW_SCRATCH)
    } catch {
      return undefined
    }
  }

  /** See `Owner`. */
  releaseScratch(at: number): void {
    this.#arena.releaseBytes(at)
  }

  /** See `Owner`. */
  await(ticket: ShortcutTicket): boolean {
    let { begun } = ticket
    let start = monotonicNow()
    const patience = PATIENCE + ticket.bytes * PATIENCE_PER_BYTE
    for (let now = start; now - start < patience; now = monotonicNow()) {
      yieldCore()
      this.#placement?.onYield(now)
      if (ticket.proceed()) return true
      if (ticket.begun === begun) continue
      begun = ticket.begun
      start = now
    }
    return false
  }
}
