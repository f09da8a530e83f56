import type { TsrError } from '@tsrun/core'
import type { Task } from './engine/task.ts'
import type { Operation } from './operation.ts'

/** When the phases of an operation began, in milliseconds of `monotonicNow()` from @tsrun/core. */
export interface WorkTiming {
  /** When the engine accepted the operation. */
  readonly posted: number
  /** When the first byte moved. Waiting for the peer ends here, and the transfer begins. */
  readonly started: number
  readonly completed: number
}

/**
 * Runs operations: on the engine's thread, on an engine in the calling thread, or directly on the
 * calling thread. A run has one driver at a time. Only the calling thread calls the methods of a
 * driver.
 */
export interface TicketDriver {
  /**
   * Starts a run of a new or settled ticket. If it throws, the ticket is unchanged.
   *
   * @param isAwaited - whether the caller blocks until the operation is settled
   * @throws ERR_TSR_GROUP_DESTROYED, ERR_TSR_TOO_MANY_OPERATIONS
   */
  start(ticket: Ticket, operation: Operation, isAwaited: boolean): void
  /** Settles a ticket whose run has ended. Omitted if the driver settles tickets on its own. */
  collect?(ticket: Ticket): void
  /** Moves data that the calling thread can move, then settles the ticket if its run has ended. */
  poll(ticket: Ticket): void
  /** Polls repeatedly for a short time. Omitted if another thread moves the data. */
  spinBriefly?(ticket: Ticket): void
  /** Blocks the calling thread until the run has ended. @throws ERR_TSR_SYNC_UNSUPPORTED */
  block(ticket: Ticket, operation: string): void
  /** Calls back once when the run has ended. If `isAwaited`, the process stays alive until then. */
  notify(ticket: Ticket, callback: () => void, isAwaited: boolean): void
  abort(ticket: Ticket): void
}

/**
 * A run of an operation, as the calling thread sees it. A driver runs the operation and settles the
 * ticket.
 */
export class Ticket {
  driver: TicketDriver
  operation: Operation
  /** The error of the run. Undefined if the run is pending or has succeeded. */
  error: TsrError | undefined = undefined
  posted = 0
  /** Index of the run in the memory that the calling thread shares with the engine's thread. */
  slot = -1
  /** The task of the engine, if the engine is on the calling thread. */
  task: Task | undefined = undefined
  /** Functions to call when the run ends. */
  #callbacks: (() => void)[] | undefined = undefined
  #isRunning = true
  #started = 0
  #completed = 0

  constructor(driver: TicketDriver, operation: Operation) {
    this.driver = driver
    this.operation = operation
  }

  get isSettled(): boolean {
    if (this.#isRunning) this.driver.collect?.(this)
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

  /** Polls repeatedly for a short time, as `TicketDriver.spinBriefly` documents. */
  spinBriefly(): void {
    if (this.#isRunning) this.driver.spinBriefly?.(this)
  }

  /** Blocks until the run has ended, as `TicketDriver.block` documents. */
  block(operation: string): void {
    if (this.#isRunning) this.driver.block(this, operation)
    if (this.#isRunning) this.driver.collect?.(this)
  }

  /**
   * Calls back once when the ticket is settled, always asynchronously. If `isAwaited` is true, the
   * process stays alive until then.
   */
  onSettled(callback: () => void, isAwaited: boolean): void {
    if (this.isSettled) queueMicrotask(callback)
    else this.driver.notify(this, callback, isAwaited)
  }

  abort(): void {
    if (!this.isSettled) this.driver.abort(this)
  }

  /** Starts a run. Called by its driver. */
  begin(driver: TicketDriver, operation: Operation): void {
    this.driver = driver
    this.operation = operation
    this.error = undefined
    this.#callbacks = undefined
    this.#isRunning = true
  }

  /** Adds a function for `callBack`. Called by its driver. */
  addCallback(callback: () => void): void {
    this.#callbacks ??= []
    this.#callbacks.push(callback)
  }

  /** Calls the added functions, asynchronously. Called by its driver when the run has ended. */
  callBack(): void {
    for (const callback of this.#callbacks ?? []) queueMicrotask(callback)
  }

  /** Ends the run. Called by its driver. */
  settle(error: TsrError | undefined, posted: number, started: number, completed: number): void {
    this.error = error
    this.posted = posted
    this.#started = started
    this.#completed = completed
    this.#isRunning = false
  }
}
