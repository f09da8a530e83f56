import type { Work, WorkTiming } from '../../process-group.ts'
import { failWithWaitingLine, showWaitingLine } from './waiting-line.ts'

/** A `Work` that another `Work` can wait for. */
export interface FollowedWork<T> extends Work<T> {
  /** Calls back on completion. Unlike `then`, it does not keep the process alive. */
  follow(callback: () => void, isAwaited?: boolean): void
}

/** A `Work` of one operation. */
export interface StartedWork<T> extends FollowedWork<T> {
  abort(): void
}

export type Outcome<T> = { readonly value: T } | { readonly error: unknown }

/** The ways to wait for a `Work`. A subclass defines the operation behind it. */
export abstract class PendingWork<T> implements FollowedWork<T> {
  abstract readonly sequence: number
  abstract readonly timing: WorkTiming | undefined
  #promise: Promise<T> | undefined
  /** Whether nobody has waited for the result or polled for it. */
  isUnread = true

  isCompleted(): boolean {
    this.isUnread = false
    return this.poll() !== undefined
  }

  wait(): T {
    this.isUnread = false
    const outcome = this.poll() ?? this.block()
    if (!('error' in outcome)) return outcome.value
    showWaitingLine(outcome.error)
    throw outcome.error
  }

  then<Result = T, Failure = never>(
    onFulfilled?: ((value: T) => Result | PromiseLike<Result>) | null,
    onRejected?: ((reason: unknown) => Failure | PromiseLike<Failure>) | null,
  ): Promise<Result | Failure> {
    this.isUnread = false
    return this.done().then(onFulfilled, onRejected)
  }

  done(): Promise<T> {
    this.#promise ??= new Promise<T>((resolve) => {
      this.follow(() => {
        const outcome = this.poll()!
        if ('error' in outcome) resolve(failWithWaitingLine(outcome.error))
        else resolve(outcome.value)
      }, true)
    })
    return this.#promise
  }

  /** @param isAwaited - whether the process stays alive and the engine polls until completion */
  abstract follow(callback: () => void, isAwaited?: boolean): void

  /** Moves the data that this thread can move. Returns the outcome once it is known. */
  abstract poll(): Outcome<T> | undefined

  protected abstract block(): Outcome<T>
}
