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

/** Creates the driver of operations for an engine that is on the calling thread. */
export function createEngineDriver(engine: Engine, waiting: Waiting): TicketDriver {
  const collect = (ticket: Ticket): void => {
    const { state, error, posted, started, completed } = ticket.task!
    if (state !== 'running') ticket.settle(error, posted, started, completed)
  }
  const driver: TicketDriver = {
    start(ticket, operation) {
      waiting.prepareFor?.(operation)
      ticket.begin(driver, operation)
      if (ticket.task !== undefined) {
        engine.restart(ticket.task, operation)
        return
      }
      ticket.task = engine.start(operation, () => {
        ticket.callBack()
      })
    },
    collect,
    poll(ticket) {
      if (ticket.task!.state === 'running') waiting.poll()
      collect(ticket)
    },
    spinBriefly(ticket) {
      if (!ticket.isSettled) waiting.spinBriefly?.(ticket)
    },
    block(ticket, operation) {
      waiting.block(ticket, operation)
    },
    notify(ticket, callback, isAwaited) {
      ticket.addCallback(callback)
      if (isAwaited) waiting.attend(ticket)
    },
    abort(ticket) {
      engine.abort(ticket.task!)
    },
  }
  return driver
}
