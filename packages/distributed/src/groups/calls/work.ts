import { monotonicNow, type TsrError } from '@tsrun/core'
import type { Ticket } from '../../ticket.ts'
import type { WorkTiming } from '../../process-group.ts'
import type { FollowedWork } from './stepped-work.ts'
import { failWithWaitingLine, showWaitingLine } from './waiting-line.ts'

export interface PendingWorkOptions<T> {
  /** For errors of synchronous waiting. */
  readonly operation: string
  readonly sequence: number
  readonly ticket: Ticket
  /** Takes the result out and frees staging; called once, also after a failure. */
  readonly finish: (error: TsrError | undefined) => T
  readonly signal: AbortSignal | undefined
}

type Outcome<T> = { readonly value: T } | { readonly error: TsrError }

/** The `Work` of one operation of an engine. */
export class PendingWork<T> implements FollowedWork<T> {
  readonly sequence: number
  readonly #operation: string
  readonly #ticket: Ticket
  readonly #finish: (error: TsrError | undefined) => T
  readonly #called = monotonicNow()
  readonly #signal: AbortSignal | undefined
  #promise: Promise<T> | undefined
  #outcome: Outcome<T> | undefined

  constructor({ operation, sequence, ticket, finish, signal }: PendingWorkOptions<T>) {
    this.#operation = operation
    this.sequence = sequence
    this.#ticket = ticket
    this.#finish = finish
    this.#signal = signal
    signal?.addEventListener('abort', this.#abort, { once: true })
  }

  get elapsed(): number {
    return (this.timing?.completed ?? monotonicNow()) - this.#called
  }

  get timing(): WorkTiming | undefined {
    return this.#ticket.timing
  }

  isCompleted(): boolean {
    if (!this.#ticket.poll()) return false
    this.#settle()
    return true
  }

  wait(): T {
    if (!this.#ticket.isSettled) this.#ticket.block(this.#operation)
    const outcome = this.#settle()
    if ('error' in outcome) {
      showWaitingLine(outcome.error)
      throw outcome.error
    }
    return outcome.value
  }

  follow(callback: () => void): void {
    this.#ticket.onSettled(callback, false)
  }

  then<Result = T, Failure = never>(
    onFulfilled?: ((value: T) => Result | PromiseLike<Result>) | null,
    onRejected?: ((reason: unknown) => Failure | PromiseLike<Failure>) | null,
  ): Promise<Result | Failure> {
    this.#promise ??= new Promise<T>((resolve) => {
      this.#ticket.onSettled(() => {
        const outcome = this.#settle()
        if ('error' in outcome) resolve(failWithWaitingLine(outcome.error))
        else resolve(outcome.value)
      }, true)
    })
    return this.#promise.then(onFulfilled, onRejected)
  }

  readonly #abort = (): void => {
    this.#ticket.abort()
  }

  #settle(): Outcome<T> {
    if (this.#outcome !== undefined) return this.#outcome
    this.#signal?.removeEventListener('abort', this.#abort)
    const { error } = this.#ticket
    try {
      const value = this.#finish(error)
      this.#outcome = error === undefined ? { value } : { error }
    } catch (thrown) {
      this.#outcome = { error: thrown as TsrError }
    }
    return this.#outcome
  }
}
