import { monotonicNow } from '@tsrun/core'
import type { WorkTiming } from '../../process-group.ts'
import { failWithWaitingLine, showWaitingLine } from '../calls/waiting-line.ts'
import type { FollowedWork, Outcome } from '../calls/work.ts'

/** Yields each work that it waits for; its result is that of the whole. */
export type Steps<T> = Generator<FollowedWork<unknown>, T, void>

/**
 * A work made of several others. It goes on by itself as they complete, so that ranks may wait for
 * such works in different orders.
 */
export class SteppedWork<T> implements FollowedWork<T> {
  readonly sequence: number
  readonly #steps: Steps<T>
  readonly #called = monotonicNow()
  readonly #followers: (() => void)[] = []
  /** The work that it waits for. */
  #current: FollowedWork<unknown> | undefined
  #outcome: Outcome<T> | undefined
  #promise: Promise<T> | undefined
  #firstTiming: WorkTiming | undefined
  #completed = 0

  /** Runs the generator to its first wait at once. */
  constructor(sequence: number, steps: Steps<T>) {
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
        // #advance passes the error to the generator
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
        // #advance passes the error to the generator
      }
      // another waiter may have advanced it meanwhile
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

  /** Runs the generator from the wait that is over to the next one. */
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
