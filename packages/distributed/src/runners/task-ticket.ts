import type { TsrError } from '@tsrun/core'
import type { Engine } from '../engine/engine.ts'
import type { Operation } from '../operation.ts'
import type { Task } from '../engine/task.ts'
import type { Ticket, WorkTiming } from '../ticket.ts'

/** How a runner on the caller's own thread waits. */
export interface Waiting {
  /** Moves what can move, without waiting. */
  poll(): void
  block(ticket: Ticket, operation: string): void
  /** Waits for a moment. */
  linger?(ticket: Ticket): void
  /**
   * Called before the engine is handed an operation.
   *
   * @throws ERR_TSR_GROUP_DESTROYED when nothing drives the engine any more
   */
  prepareFor?(operation: Operation): void
  /** Keeps the engine going until the ticket is settled, because somebody awaits it. */
  attend(ticket: Ticket): void
}

/** The ticket of an engine that runs on the caller's thread. */
export class TaskTicket implements Ticket {
  readonly #engine: Engine
  readonly #waiting: Waiting
  readonly #task: Task
  readonly #callbacks: (() => void)[] = []

  constructor(engine: Engine, operation: Operation, waiting: Waiting) {
    this.#engine = engine
    this.#waiting = waiting
    waiting.prepareFor?.(operation)
    this.#task = engine.start(operation, () => {
      for (const callback of this.#callbacks) queueMicrotask(callback)
    })
  }

  get isSettled(): boolean {
    return this.#task.state !== 'running'
  }

  get error(): TsrError | undefined {
    return this.#task.error
  }

  get timing(): WorkTiming | undefined {
    const { posted, started, completed } = this.#task
    return this.isSettled ? { posted, started, completed } : undefined
  }

  poll(): boolean {
    if (!this.isSettled) this.#waiting.poll()
    return this.isSettled
  }

  linger(): void {
    if (!this.isSettled) this.#waiting.linger?.(this)
  }

  onSettled(callback: () => void, isAwaited: boolean): void {
    if (this.isSettled) {
      queueMicrotask(callback)
      return
    }
    this.#callbacks.push(callback)
    if (isAwaited) this.#waiting.attend(this)
  }

  block(operation: string): void {
    this.#waiting.block(this, operation)
  }

  restart(operation: Operation): void {
    this.#waiting.prepareFor?.(operation)
    if (this.#callbacks.length > 0) this.#callbacks.length = 0
    this.#engine.restart(this.#task, operation)
  }

  abort(): void {
    if (!this.isSettled) this.#engine.abort(this.#task)
  }
}
