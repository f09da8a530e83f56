import type { Engine } from '../engine/engine.ts'
import type { Operation } from '../operation.ts'
import type { Ticket, TicketDriver } from '../ticket.ts'

/** How a runner waits if its engine is on the calling thread. */
export interface Waiting {
  /** Moves the data that can move now. */
  poll(): void
  block(ticket: Ticket, operation: string): void
  /** Polls for at most a few milliseconds. */
  spinBriefly?(ticket: Ticket): void
  /**
   * Called before the engine starts an operation.
   *
   * @throws ERR_TSR_GROUP_DESTROYED if the runner is closed
   */
  prepareFor?(operation: Operation): void
  /** Keeps polling the engine until a ticket is settled. */
  attend(ticket: Ticket): void
}

/** Runs operations on an engine that is on the calling thread. */
export class EngineDriver implements TicketDriver {
  readonly #engine: Engine
  readonly #waiting: Waiting

  constructor(engine: Engine, waiting: Waiting) {
    this.#engine = engine
    this.#waiting = waiting
  }

  start(ticket: Ticket, operation: Operation): void {
    this.#waiting.prepareFor?.(operation)
    ticket.begin(this, operation)
    ticket.callbacks = undefined
    if (ticket.task !== undefined) {
      this.#engine.restart(ticket.task, operation)
      return
    }
    ticket.task = this.#engine.start(operation, () => {
      for (const callback of ticket.callbacks ?? []) queueMicrotask(callback)
    })
  }

  collect(ticket: Ticket): void {
    const { state, error, posted, started, completed } = ticket.task!
    if (state !== 'running') ticket.settle(error, posted, started, completed)
  }

  poll(ticket: Ticket): void {
    if (ticket.task!.state === 'running') this.#waiting.poll()
    this.collect(ticket)
  }

  spinBriefly(ticket: Ticket): void {
    if (!ticket.isSettled) this.#waiting.spinBriefly?.(ticket)
  }

  block(ticket: Ticket, operation: string): void {
    this.#waiting.block(ticket, operation)
  }

  notify(ticket: Ticket, callback: () => void, isAwaited: boolean): void {
    ticket.callbacks ??= []
    ticket.callbacks.push(callback)
    if (isAwaited) this.#waiting.attend(ticket)
  }

  abort(ticket: Ticket): void {
    this.#engine.abort(ticket.task!)
  }
}
