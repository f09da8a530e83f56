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
  #cpu = 0
  #cpuBefore = process.cpuUsage()

  get examplesPerSecond(): number {
    return this.#examples === 0 ? 0 : (1000 * this.#examples) / this.#milliseconds
  }

  /** The share of the time that this rank waited for gradients. */
  get exposed(): number {
    return this.#examples === 0 ? 0 : this.#waited / this.#milliseconds
  }

  /** How much of a core this process used during the steps, with all of its threads. */
  get cpuShare(): number {
    return this.#examples === 0 ? 0 : this.#cpu / this.#milliseconds
  }

  onStep({ examples, waited }: StepInfo): void {
    const now = performance.now()
    if (this.#last !== undefined) {
      this.#milliseconds += now - this.#last
      this.#waited += waited
      this.#examples += examples
      const { user, system } = process.cpuUsage(this.#cpuBefore)
      this.#cpu += (user + system) / 1000
    }
    this.#last = now
    this.#cpuBefore = process.cpuUsage()
  }

  onEvaluate(): void {
    this.#last = performance.now()
    this.#cpuBefore = process.cpuUsage()
  }
}
