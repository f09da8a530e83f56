import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from '../model/parameter.ts'
import { sumInto } from './sum-gradients.ts'
import type { GradientListener } from '../model/recording.ts'
import type { LocalSegment } from '../model/segment.ts'

/**
 * Hands gradients on, once a parameter: those of a parameter that several segments have are summed
 * until the first of these, the last in a backward pass, is through.
 */
export class SharedGradients {
  /** For the backward passes of the segments. */
  readonly listener: GradientListener
  readonly #onGradient: GradientListener
  /** How many segments that have the parameter are still to come, where there are several. */
  readonly #left = new Map<Parameter, number>()
  /** By the parameters' names. */
  readonly #sums = new Map<string, Tensor>()
  readonly #add = sumInto(this.#sums)

  constructor(segments: readonly LocalSegment[], onGradient: GradientListener) {
    this.#onGradient = onGradient
    const all = segments.flatMap(({ parameters }) => parameters)
    for (const parameter of all) this.#left.set(parameter, (this.#left.get(parameter) ?? 0) + 1)
    for (const [parameter, count] of this.#left) if (count === 1) this.#left.delete(parameter)
    const take: GradientListener = (parameter, gradient) => {
      const next = this.#left.has(parameter) ? this.#add : onGradient
      next(parameter, gradient)
    }
    this.listener = this.#left.size === 0 ? onGradient : take
  }

  /** After the backward pass of a segment. */
  finish({ parameters }: LocalSegment): void {
    for (const parameter of parameters) {
      const left = this.#left.get(parameter)
      if (left === undefined) continue
      this.#left.set(parameter, left - 1)
      const sum = this.#sums.get(parameter.name)
      if (left > 1 || sum === undefined) continue
      this.#sums.delete(parameter.name)
      this.#onGradient(parameter, sum)
    }
  }

  /** What is left after a pass that has failed. */
  dispose(): void {
    for (const sum of this.#sums.values()) sum.dispose()
    this.#sums.clear()
  }
}
