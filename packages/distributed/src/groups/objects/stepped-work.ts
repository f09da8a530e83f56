import { monotonicNow } from '@tsrun/core'
import type { WorkTiming } from '../../process-group.ts'
import { PendingWork, type FollowedWork, type Outcome } from '../calls/pending-work.ts'

/** A generator that yields each `Work` to wait for, and returns the result of the operation. */
export type Steps<T> = Generator<FollowedWork<unknown>, T, void>

/**
 * A `Work` made of several others. It advances whenever one of them completes, even if nobody
 * waits. Ranks may therefore wait for several such works in different orders.
 */
export class SteppedWork<T> extends PendingWork<T> {
  readonly sequence: number
  timing: WorkTiming | undefined
  readonly #steps: Steps<T>
  readonly #followers: (() => void)[] = []
  #current: FollowedWork<unknown> | undefined
  #isAwaited = false
  #firstTiming: WorkTiming | undefined
  #outcome: Outcome<T> | undefined

  /** Runs the generator up to its first wait. */
  constructor(sequence: number, steps: Steps<T>) {
    super()
    this.sequence = sequence
    this.#steps = steps
    this.#advance()
  }

  follow(callback: () => void, isAwaited = false): void {
    if (this.#outcome !== undefined) {
      queueMicrotask(callback)
      return
    }
    this.#followers.push(callback)
    if (!isAwaited || this.#isAwaited) return
    this.#isAwaited = true
    this.#followCurrent()
  }

  poll(): Outcome<T> | undefined {
    while (this.#outcome === undefined && this.#current?.isCompleted() === true) this.#advance()
    return this.#outcome
  }

  protected block(): Outcome<T> {
    while (this.#outcome === undefined) {
      try {
        this.#current?.wait()
      } catch {
        // Ignore the error here: `#advance` passes it to the generator.
      }
      this.#advance()
    }
    return this.#outcome
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
    this.#outcome = outcome
    if (this.#firstTiming !== undefined) {
      this.timing = { ...this.#firstTiming, completed: monotonicNow() }
    }
    for (const callback of this.#followers.splice(0)) queueMicrotask(callback)
  }
}
