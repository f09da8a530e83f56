import type { TsrError } from '@tsrun/core'
import type { WorkerRunner } from './worker-runner.ts'
import type { Ticket, WorkTiming } from '../ticket.ts'

/** An operation in the worker: a slot of the shared state until its end was seen. */
export class WorkerTicket implements Ticket {
  readonly slot: number
  readonly #host: WorkerRunner
  #outcome: { readonly error: TsrError | undefined; readonly timing: WorkTiming } | undefined

  constructor(host: WorkerRunner, slot: number) {
    this.#host = host
    this.slot = slot
  }

  get isSettled(): boolean {
    this.#outcome ??= this.#host.collect(this)
    return this.#outcome !== undefined
  }

  get error(): TsrError | undefined {
    return this.isSettled ? this.#outcome?.error : undefined
  }

  get timing(): WorkTiming | undefined {
    return this.isSettled ? this.#outcome?.timing : undefined
  }

  poll(): boolean {
    return this.isSettled
  }

  onSettled(callback: () => void, isAwaited: boolean): void {
    if (this.isSettled) queueMicrotask(callback)
    else this.#host.notify(this, callback, isAwaited)
  }

  block(): void {
    this.#host.block(this)
  }

  abort(): void {
    if (!this.isSettled) this.#host.abort(this)
  }
}
