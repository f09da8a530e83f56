import { monotonicNow } from '@tsrun/core'
import type { Work, WorkTiming } from '../../process-group.ts'
import { failWithWaitingLine, showWaitingLine } from './waiting-line.ts'

/** A work that others are made of. */
export interface FollowedWork<T> extends Work<T> {
  /** Calls back once it is completed; unlike `then`, it does not keep the process alive. */
  follow(callback: () => void): void
}

type Outcome<T> = { readonly value: T } | { readonly error: unknown }

/**
 * A work made of several, as a generator that yields each one it waits for. It goes on by itself,
 * so that ranks may wait for such works in different orders.
 */
export class SteppedWork<T> implements FollowedWork<T> {
  readonly sequence: number
  readonly #steps: Generator<FollowedWork<unknown>, T, void>
  readonly #called = monotonicNow()
  readonly #followers: (() => void)[] = []
  #current: FollowedWork<unknown> | undefined
  #outcome: Outcome<T> | undefined
  #promise: Promise<T> | undefined
  #firstTiming: WorkTiming | undefined
  #completed = 0

  /** Runs up to the first wait at once. */
  constructor(sequence: number, steps: Generator<FollowedWork<unknown>, T, void>) {
    this.sequence = sequence
    this.#steps = steps
    this.#advance()
  }

  get elapsed(): number {
    return (this.#completed || monotonicNow()) - this.#called
  }

  get timing(): WorkTiming | undefined {
    if (this.#outcome === undefined) return undefined
    const { posted, started } = this.#firstTiming ?? { posted: this.#called, started: this.#called }
    return { posted, started, completed: this.#completed }
  }

  isCompleted(): boolean {
    while (this.#outcome === undefined && this.#current?.isCompleted() === true) this.#advance()
    return this.#outcome !== undefined
  }

  wait(): T {
    while (this.#outcome === undefined) {
      try {
        this.#current?.wait()
      } catch {
        // the step learns of it in #advance
      }
      this.#advance()
    }
    try {
      return this.#result()
    } catch (error) {
      showWaitingLine(error)
      throw error
    }
  }

  follow(callback: () => void): void {
    if (this.#outcome === undefined) this.#followers.push(callback)
    else queueMicrotask(callback)
  }

  then<Result = T, Failure = never>(
    onFulfilled?: ((value: T) => Result | PromiseLike<Result>) | null,
    onRejected?: ((reason: unknown) => Failure | PromiseLike<Failure>) | null,
  ): Promise<Result | Failure> {
    this.#promise ??= this.#run()
    return this.#promise.then(onFulfilled, onRejected)
  }

  async #run(): Promise<T> {
    while (this.#outcome === undefined) {
      const current = this.#current
      try {
        await current
      } catch {
        // the step learns of it in #advance
      }
      // it may have gone on meanwhile
      if (current === this.#current) this.#advance()
    }
    try {
      return this.#result()
    } catch (error) {
      return await failWithWaitingLine(error)
    }
  }

  #result(): T {
    const outcome = this.#outcome
    if (outcome === undefined || 'error' in outcome) throw outcome?.error as Error
    return outcome.value
  }

  /** Goes on to the next wait: the current one is over. */
  #advance(): void {
    this.#firstTiming ??= this.#current?.timing
    try {
      const { done, value } = this.#resume()
      if (done === true) {
        this.#settle({ value })
        return
      }
      this.#current = value
      value.follow(() => {
        this.isCompleted()
      })
    } catch (error) {
      this.#settle({ error })
    }
  }

  #resume(): IteratorResult<FollowedWork<unknown>, T> {
    try {
      this.#current?.wait()
    } catch (error) {
      return this.#steps.throw(error)
    }
    return this.#steps.next()
  }

  #settle(outcome: Outcome<T>): void {
    this.#outcome = outcome
    this.#completed = monotonicNow()
    this.#current = undefined
    for (const callback of this.#followers.splice(0)) queueMicrotask(callback)
  }
}
