import { monotonicNow } from '@tsrun/core'
import { yieldCore } from '@tsrun/native'
import type { Journal } from '../../diagnosis/journal.ts'
import { StatusPublisher } from '../../diagnosis/status-page.ts'
import { isCollective, type Operation } from '../../operation.ts'
import type { Ticket } from '../../ticket.ts'
import type { LocalPlace } from '../../transports/transport.ts'
import { Placement } from '../placement.ts'
import { ShortcutGroup, type ShortcutContext } from './group.ts'
import { ShortcutTicket } from './ticket.ts'

/** Milliseconds that a caller looks for the other ranks before it leaves an operation to the engine. */
const PATIENCE = 0.2

export interface ShortcutOptions extends ShortcutContext {
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
  readonly #journal: Journal
  readonly #groups = new Map<number, ShortcutGroup>()
  readonly #placement: Placement | undefined
  readonly #status: StatusPublisher | undefined

  constructor(options: ShortcutOptions) {
    const { journal, place, submit } = options
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

  /** The ticket of an operation that runs here, or would if the group were idle; else undefined. */
  take(operation: Operation): Ticket | undefined {
    const group = this.#groups.get(operation.group)
    if (group === undefined || !isCollective(operation)) return undefined
    const form = group.formOf(operation)
    return form && new ShortcutTicket(this, group, operation, form)
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
    this.#status?.onSettled(completed)
  }

  /** See `Owner`. */
  await(ticket: ShortcutTicket): boolean {
    const start = monotonicNow()
    for (let now = start; now - start < PATIENCE; now = monotonicNow()) {
      yieldCore()
      this.#placement?.onYield(now)
      if (ticket.proceed()) return true
    }
    return false
  }
}
