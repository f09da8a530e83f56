import { monotonicNow } from '@tsrun/core'
import type { Work, WorkTiming } from '../process-group.ts'

/** A work made of several, as a generator that yields each one it waits for. */
export class SteppedWork<T> implements Work<T> {
  readonly sequence: number
  readonly #steps: Generator<Work<unknown>, T, void>
  readonly #called = monotonicNow()
  #current: Work<unknown> | undefined
  #outcome: { readonly value: T } | { readonly error: unknown } | undefined
  #promise: Promise<T> | undefined
  #firstTiming: WorkTiming | undefined
  #completed = 0

  /** Runs up to the first wait at once. */
  constructor(sequence: number, steps: Generator<Work<unknown>, T, void>) {
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
      } catch (error) {
        this.#settle({ error })
        break
      }
      this.#advance()
    }
    return this.#result()
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
      const waitedFor = this.#current
      try {
        await waitedFor
      } catch (error) {
        this.#settle({ error })
        break
      }
      // `wait` or `isCompleted` may have gone on meanwhile
      if (waitedFor === this.#current) this.#advance()
    }
    return this.#result()
  }

  #result(): T {
    const outcome = this.#outcome
    if (outcome === undefined || 'error' in outcome) throw outcome?.error as Error
    return outcome.value
  }

  #advance(): void {
    this.#firstTiming ??= this.#current?.timing
    try {
      const { done, value } = this.#steps.next()
      if (done === true) this.#settle({ value })
      else this.#current = value
    } catch (error) {
      this.#settle({ error })
    }
  }

  #settle(outcome: { readonly value: T } | { readonly error: unknown }): void {
    this.#outcome = outcome
    this.#completed = monotonicNow()
    this.#current = undefined
  }
}
