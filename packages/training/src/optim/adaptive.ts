import type { Tensor } from '@tensorflow/tfjs-core'
import { reachesTensors } from '../backend/bridge/select.ts'
import { currentUpdates, type EagerUpdates } from '../backend/eager-updates.ts'
import { tf } from '../backend/tensorflow.ts'
import { adamStep } from '../backend/vector-math.ts'
import type { Parameter } from '../nn/parameter.ts'
import { updateInPlace, updateOnDevice } from './on-device.ts'
import { checkOption, updateParameters, type Gradients, type Optimizer } from './optimizer.ts'
import { StateOfParameters, type OptimizerState } from './state.ts'

export interface AdamOptions {
  /** Default 0.001. */
  readonly learningRate?: number
  /** Decay of the mean and of the mean square of the gradients; default [0.9, 0.999]. */
  readonly betas?: readonly [number, number]
  /** Keeps the step finite where gradients vanish; default 1e-8. */
  readonly epsilon?: number
}

/** What Adam and AdamW share: the moments, and a decay of the weights that may be zero. */
export class AdaptiveOptimizer implements Optimizer {
  learningRate: number
  readonly #betas: readonly [number, number]
  readonly #epsilon: number
  readonly #decayOf: (name: string) => number
  readonly #state = new StateOfParameters(['mean', 'square'])

  /** @param decayOf - the share of a parameter's values, times the learning rate, that a step takes away */
  constructor(
    { learningRate = 1e-3, betas = [0.9, 0.999], epsilon = 1e-8 }: AdamOptions,
    decayOf: (name: string) => number,
  ) {
    checkOption('learningRate', learningRate, 0)
    checkOption('betas[0]', betas[0], 0, 1)
    checkOption('betas[1]', betas[1], 0, 1)
    checkOption('epsilon', epsilon, 0)
    this.learningRate = learningRate
    this.#betas = betas
    this.#epsilon = epsilon
    this.#decayOf = decayOf
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    if (!reachesTensors()) {
      const updates = currentUpdates()
      if (updates === undefined) this.#stepOnDevice(parameters, gradients)
      else this.#stepInPlace(parameters, gradients, updates)
      return
    }
    const betas = this.#betas
    const epsilon = this.#epsilon
    updateParameters(parameters, gradients, ({ name, value: { size } }) => {
      const state = this.#state
      const means = state.onHost(name, 'mean', size).vector
      const squares = state.onHost(name, 'square', size).vector
      const factors = { ...this.#factors(name), epsilon, betas }
      return (next, value, gradient) => {
        const { values: mean } = means
        const { values: square } = squares
        adamStep({ next, value, gradient, mean, square }, factors)
      }
    })
  }

  async state(): Promise<OptimizerState> {
    return await this.#state.read()
  }

  loadState(state: OptimizerState): void {
    this.#state.load(state)
  }

  #stepOnDevice(parameters: readonly Parameter[], gradients: Gradients): void {
    const [beta1, beta2] = this.#betas
    const state = this.#state
    updateOnDevice(parameters, gradients, (value, gradient, { name, shape }) => {
      const mean = state.onDevice(name, 'mean', shape, decay(beta1, gradient))
      const square = state.onDevice(name, 'square', shape, decay(beta2, tf.square(gradient)))
      const { rate, scale, keep } = this.#factors(name)
      const deviation = tf.add(tf.mul(tf.sqrt(square), scale), this.#epsilon)
      const kept = keep === 1 ? value : tf.mul(value, keep)
      return tf.sub(kept, tf.div(tf.mul(mean, rate), deviation))
    })
  }

  #stepInPlace(
    parameters: readonly Parameter[],
    gradients: Gradients,
    updates: EagerUpdates,
  ): void {
    const { learningRate } = this
    const [betas, epsilon, state] = [this.#betas, this.#epsilon, this.#state]
    updateInPlace(parameters, gradients, updates, ({ name, shape, value }, gradient, store) => {
      const step = state.nextStep(name)
      const [mean, square] = state.takeFromDevice(name, shape)
      const keep = 1 - learningRate * this.#decayOf(name)
      const kept = keep === 1 ? value : tf.tidy(() => tf.keep(tf.mul(value, keep)))
      if (kept !== value) value.dispose()
      const factors = { learningRate, betas, step, epsilon }
      updates.adam([kept, mean!, square!], gradient, factors, ([next, ...moments]) => {
        store(next!)
        state.putOnDevice(name, moments)
      })
    })
  }

  /** Those of the next step of a parameter. The moments begin at zero: the factors correct that. */
  #factors(name: string): { readonly rate: number; readonly scale: number; readonly keep: number } {
    const [beta1, beta2] = this.#betas
    const step = this.#state.nextStep(name)
    return {
      rate: this.learningRate / (1 - beta1 ** step),
      scale: 1 / Math.sqrt(1 - beta2 ** step),
      keep: 1 - this.learningRate * this.#decayOf(name),
    }
  }
}

/** former := beta former + (1 - beta) next, zero at first. */
function decay(beta: number, next: Tensor): (former: Tensor | undefined) => Tensor {
  return (former) => {
    const part = tf.mul(next, 1 - beta)
    return former === undefined ? part : tf.add(tf.mul(former, beta), part)
  }
}
