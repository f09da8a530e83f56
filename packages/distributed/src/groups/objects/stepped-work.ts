import type { WorkTiming } from '../../process-group.ts'
import { LocalWork, type FollowedWork, type Outcome } from '../calls/pending-work.ts'

/** Yields each `Work` that it waits for, and returns the result of the whole operation. */
export type Steps<T> = Generator<FollowedWork<unknown>, T, void>

/**
 * A `Work` made of several others. It advances whenever one of them completes, even if nobody
 * waits. Ranks may therefore wait for several such works in different orders.
 */
export class SteppedWork<T> extends LocalWork<T> {
  readonly sequence: number
  readonly #steps: Steps<T>
  #current: FollowedWork<unknown> | undefined
  #isAwaited = false
  #firstTiming: WorkTiming | undefined

  /** Runs the generator up to its first wait. */
  constructor(sequence: number, steps: Steps<T>) {
    super()
    this.sequence = sequence
    this.#steps = steps
    this.#advance()
  }

  get timing(): WorkTiming | undefined {
    if (this.outcome === undefined) return undefined
    const { posted, started } = this.#firstTiming ?? { posted: this.called, started: this.called }
    return { posted, started, completed: this.completed }
  }

  protected keepAlive(): void {
    if (this.#isAwaited) return
    this.#isAwaited = true
    this.#followCurrent()
  }

  poll(): Outcome<T> | undefined {
    while (this.outcome === undefined && this.#current?.isCompleted() === true) this.#advance()
    return this.outcome
  }

  protected block(): Outcome<T> {
    while (this.outcome === undefined) {
      try {
        this.#current?.wait()
      } catch {
        // Ignore the error here: `#advance` passes it to the generator.
      }
      this.#advance()
    }
    return this.outcome
  }

  #followCurrent(): void {
    this.#current?.follow(() => {
      this.poll()
    }, this.#isAwaited)
  }

  #advance(): void {
    this.#firstTiming ??= this.#current?.timing
    try {
      const { done, value } = this.#resume()
      if (done === true) {
        this.#end({ value })
        return
      }
      this.#current = value
      this.#followCurrent()
    } catch (error) {
      this.#end({ error })
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

  #end(outcome: Outcome<T>): void {
    this.#current = undefined
    this.settle(outcome)
  }
}
