import type { Parameter } from '../nn/parameter.ts'
import { checkOption, updateParameters, type Gradients, type Optimizer } from './optimizer.ts'

export interface SGDOptions {
  readonly learningRate: number
  /** Share of the former step that is added to this one; default 0. */
  readonly momentum?: number
}

/**
 * Stochastic gradient descent with momentum, as torch.optim.SGD defines it:
 * v = momentum v + g (v = g at first), p = p - learningRate v.
 *
 * @throws ERR_TSR_ARGUMENT when an option is out of range
 */
export class SGD implements Optimizer {
  learningRate: number
  readonly #momentum: number
  readonly #velocities = new Map<string, Float32Array>()

  constructor({ learningRate, momentum = 0 }: SGDOptions) {
    checkOption('learningRate', learningRate, 0)
    checkOption('momentum', momentum, 0, 1)
    this.learningRate = learningRate
    this.#momentum = momentum
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    const rate = this.learningRate
    const momentum = this.#momentum
    updateParameters(parameters, gradients, (next, value, gradient, name) => {
      const velocity = momentum === 0 ? gradient : this.#accelerate(name, gradient)
      for (let i = 0; i < next.length; i++) next[i] = value[i]! - rate * velocity[i]!
    })
  }

  #accelerate(name: string, gradient: Float32Array): Float32Array {
    const momentum = this.#momentum
    const velocity = this.#velocities.get(name)
    if (velocity === undefined) {
      const first = gradient.slice()
      this.#velocities.set(name, first)
      return first
    }
    for (let i = 0; i < velocity.length; i++) velocity[i] = momentum * velocity[i]! + gradient[i]!
    return velocity
  }
}
