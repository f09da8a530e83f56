import type { TsrError } from '@tsrun/core'
import type { Task } from './engine/task.ts'
import type { Operation } from './operation.ts'

/** When the phases of an operation began, in milliseconds of core's `monotonicNow()`. */
export interface WorkTiming {
  /** The engine took it up. */
  readonly posted: number
  /** The peer was there: first byte moved. Before it the operation waited, after it it transferred. */
  readonly started: number
  readonly completed: number
}

/**
 * Runs operations: the engine's thread, the engine on this thread, or this thread itself. A run has one
 * driver at a time, which only the calling thread calls.
 */
export interface TicketDriver {
  /**
   * Begins a run of a new ticket, or of one that has settled. A driver that refuses it has not changed the
   * ticket.
   *
   * @throws ERR_TSR_GROUP_DESTROYED, ERR_TSR_TOO_MANY_OPERATIONS
   */
  start(ticket: Ticket, operation: Operation): void
  /** Settles the ticket if its run has ended; moves nothing. */
  collect(ticket: Ticket): void
  /** Moves what the calling thread can move now, then collects. */
  poll(ticket: Ticket): void
  /** As `poll`, for as long as the peers come within a moment. */
  spinBriefly(ticket: Ticket): void
  /** Blocks the calling thread until the run has ended. @throws ERR_TSR_SYNC_UNSUPPORTED */
  block(ticket: Ticket, operation: string): void
  /** Calls back once when the run has ended; `isAwaited`: the process must not end before. */
  notify(ticket: Ticket, callback: () => void, isAwaited: boolean): void
  abort(ticket: Ticket): void
}

/** An operation that was handed to a driver, as the calling thread sees it. */
export class Ticket {
  driver: TicketDriver
  operation: Operation
  /** Why the run failed; undefined while it runs and when it succeeded. */
  error: TsrError | undefined = undefined
  posted = 0
  /** In the memory that the engine's thread shares with this one. */
  slot = -1
  /** Of an engine on this thread. */
  task: Task | undefined = undefined
  /** Called when that task ends. */
  callbacks: (() => void)[] | undefined = undefined
  #isRunning = true
  #started = 0
  #completed = 0

  constructor(driver: TicketDriver, operation: Operation) {
    this.driver = driver
    this.operation = operation
  }

  get isSettled(): boolean {
    if (this.#isRunning) this.driver.collect(this)
    return !this.#isRunning
  }

  get timing(): WorkTiming | undefined {
    if (!this.isSettled) return undefined
    return { posted: this.posted, started: this.#started, completed: this.#completed }
  }

  /** Moves what can move now, where the calling thread does that; returns whether it is settled. */
  poll(): boolean {
    if (this.#isRunning) this.driver.poll(this)
    return !this.#isRunning
  }

  /** See `TicketDriver`. */
  spinBriefly(): void {
    if (this.#isRunning) this.driver.spinBriefly(this)
  }

  /** See `TicketDriver`. */
  block(operation: string): void {
    if (this.#isRunning) this.driver.block(this, operation)
    if (this.#isRunning) this.driver.collect(this)
  }

  /** Calls back once when it is settled, never before this returns; see `TicketDriver.notify`. */
  onSettled(callback: () => void, isAwaited: boolean): void {
    if (this.isSettled) queueMicrotask(callback)
    else this.driver.notify(this, callback, isAwaited)
  }

  abort(): void {
    if (!this.isSettled) this.driver.abort(this)
  }

  /** Called by a driver that takes over the run. */
  begin(driver: TicketDriver, operation: Operation): void {
    this.driver = driver
    this.operation = operation
    this.error = undefined
    this.#isRunning = true
  }

  /** Called by the driver when the run has ended. */
  settle(error: TsrError | undefined, posted: number, started: number, completed: number): void {
    this.error = error
    this.posted = posted
    this.#started = started
    this.#completed = completed
    this.#isRunning = false
  }
}
