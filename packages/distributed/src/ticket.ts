import type { TsrError } from '@tsrun/core'
import type { Task } from './engine/task.ts'
import type { Operation } from './operation.ts'

/** When the phases of an operation began, in milliseconds of core's `monotonicNow()`. */
export interface WorkTiming {
  /** When the engine accepted the operation. */
  readonly posted: number
  /** When the first byte moved. Waiting for the peer ends here, and the transfer begins. */
  readonly started: number
  readonly completed: number
}

/**
 * Runs operations: on the engine's thread, on an engine in this thread, or directly on this thread.
 * A run has one driver at a time. Only the calling thread calls its methods.
 */
export interface TicketDriver {
  /**
   * Starts a run of a new or settled ticket. If it throws, the ticket is unchanged.
   *
   * @throws ERR_TSR_GROUP_DESTROYED, ERR_TSR_TOO_MANY_OPERATIONS
   */
  start(ticket: Ticket, operation: Operation): void
  /** Settles the ticket if its run has ended. Moves no data. */
  collect(ticket: Ticket): void
  /** Moves the data that the calling thread can move now, then collects. */
  poll(ticket: Ticket): void
  /** Like `poll`, but polls repeatedly for a short time while peers arrive. */
  spinBriefly(ticket: Ticket): void
  /** Blocks the calling thread until the run has ended. @throws ERR_TSR_SYNC_UNSUPPORTED */
  block(ticket: Ticket, operation: string): void
  /** Calls back once when the run has ended. If `isAwaited`, it keeps the process alive until then. */
  notify(ticket: Ticket, callback: () => void, isAwaited: boolean): void
  abort(ticket: Ticket): void
}

/** An operation that a driver runs, as the calling thread sees it. */
export class Ticket {
  driver: TicketDriver
  operation: Operation
  /** Undefined while the run is pending or if it succeeded. */
  error: TsrError | undefined = undefined
  posted = 0
  /** Index in the memory shared with the engine's thread. */
  slot = -1
  /** Set if the engine runs on this thread. */
  task: Task | undefined = undefined
  /** Called when `task` ends. */
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

  /** Moves data if the driver uses the calling thread. Returns whether the ticket is settled. */
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

  /** Calls back once when the ticket is settled, always asynchronously. See `TicketDriver.notify`. */
  onSettled(callback: () => void, isAwaited: boolean): void {
    if (this.isSettled) queueMicrotask(callback)
    else this.driver.notify(this, callback, isAwaited)
  }

  abort(): void {
    if (!this.isSettled) this.driver.abort(this)
  }

  /** Called by the driver that takes over the run. */
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
