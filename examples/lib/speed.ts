import type { FitCallback, StepInfo } from '@tsrun/training'

/**
 * Measures the steps of `fit`, for its option `callbacks`. The first step, which also compiles, does not
 * count, and neither do evaluations.
 */
export class Speed implements FitCallback {
  #milliseconds = 0
  #waited = 0
  #examples = 0
  #last: number | undefined

  get examplesPerSecond(): number {
    return this.#examples === 0 ? 0 : (1000 * this.#examples) / this.#milliseconds
  }

  /** The share of the time that this rank waited for gradients. */
  get exposed(): number {
    return this.#examples === 0 ? 0 : this.#waited / this.#milliseconds
  }

  onStep({ examples, waited }: StepInfo): void {
    const now = performance.now()
    if (this.#last !== undefined) {
      this.#milliseconds += now - this.#last
      this.#waited += waited
      this.#examples += examples
    }
    this.#last = now
  }

  onEvaluate(): void {
    this.#last = performance.now()
  }
}
