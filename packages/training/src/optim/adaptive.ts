import { refuseUnknown } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { reachesTensors } from '../backend/bridge/select.ts'
import { currentUpdates, type EagerUpdates } from '../backend/tensorflow/eager-updates.ts'
import { tf } from '../backend/tfjs.ts'
import { adamStep, addScaled, type AdamFactors } from '../backend/vector-math.ts'
import type { Parameter } from '../model/parameter.ts'
import { decayByName, type DecayOptions } from './decay.ts'
import { addDecay, updateInPlace, updateOnDevice } from './on-device.ts'
import {
  checkOption,
  checkStep,
  updateParameters,
  type Gradients,
  type Optimizer,
} from './optimizer.ts'
import { StateOfParameters, type OptimizerState } from './state.ts'

export interface AdamOptions extends DecayOptions {
  /** Default 0.001. */
  readonly learningRate?: number
  /** Decay of the mean and of the mean square of the gradients; default [0.9, 0.999]. */
  readonly betas?: readonly [number, number]
  /** Keeps the step finite where gradients vanish; default 1e-8. */
  readonly epsilon?: number
}

const KNOWN = Object.keys({
  learningRate: true,
  betas: true,
  epsilon: true,
  weightDecay: true,
  withoutDecay: true,
} satisfies Record<keyof AdamOptions, true>)

interface Factors extends Pick<AdamFactors, 'rate' | 'scale' | 'keep'> {
  /** The number of the step; the first is 1. */
  readonly step: number
  /** The share of the value that comes to the gradient. */
  readonly added: number
}

/** What Adam and AdamW share; they differ in what the weights' decay is added to. */
export class AdaptiveOptimizer implements Optimizer {
  learningRate: number
  readonly #betas: readonly [number, number]
  readonly #epsilon: number
  readonly #decayOf: (name: string) => number
  readonly #decays: 'gradient' | 'value'
  readonly #state = new StateOfParameters(['mean', 'square'])

  /**
   * @param decays - what the decay changes: the gradient, or by the learning rate the value, which the
   *   moments do not see
   * @param weightDecay - where the options have none
   */
  constructor(options: AdamOptions, decays: 'gradient' | 'value', weightDecay: number) {
    refuseUnknown(options, KNOWN)
    const { learningRate = 1e-3, betas = [0.9, 0.999], epsilon = 1e-8 } = options
    checkOption('learningRate', learningRate, 0)
    checkOption('betas[0]', betas[0], 0, 1)
    checkOption('betas[1]', betas[1], 0, 1)
    checkOption('epsilon', epsilon, 0)
    this.learningRate = learningRate
    this.#betas = betas
    this.#epsilon = epsilon
    this.#decayOf = decayByName(options, weightDecay)
    this.#decays = decays
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    checkStep(parameters, gradients)
    this.#state.checkSizes(parameters, gradients)
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
      const { added, rate, scale, keep } = this.#factors(name)
      const factors = { rate, scale, keep, epsilon, betas }
      return (next, value, given) => {
        const { values: mean } = means
        const { values: square } = squares
        const gradient = added === 0 ? given : next
        if (added !== 0) addScaled(gradient, given, added, value)
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

  dispose(): void {
    this.#state.dispose()
  }

  #stepOnDevice(parameters: readonly Parameter[], gradients: Gradients): void {
    const [beta1, beta2] = this.#betas
    const state = this.#state
    updateOnDevice(parameters, gradients, (value, given, { name, shape }) => {
      const { rate, scale, keep, added } = this.#factors(name)
      const gradient = addDecay(given, added, value)
      const mean = state.onDevice(name, 'mean', shape, decay(beta1, gradient))
      const square = state.onDevice(name, 'square', shape, decay(beta2, tf.square(gradient)))
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
    updateInPlace(parameters, gradients, updates, ({ name, shape, value }, given, store) => {
      const { step, keep, added } = this.#factors(name)
      const gradient = addDecay(given, added, value)
      const [mean, square] = state.takeFromDevice(name, shape)
      const kept = keep === 1 ? value : tf.tidy(() => tf.keep(tf.mul(value, keep)))
      if (kept !== value) value.dispose()
      const factors = { learningRate, betas, step, epsilon }
      updates.adam([kept, mean!, square!], gradient, factors, ([next, ...moments]) => {
        store(next!)
        state.putOnDevice(name, moments)
      })
      if (gradient !== given) gradient.dispose()
    })
  }

  /** Those of the next step of a parameter. The moments begin at zero: the factors correct that. */
  #factors(name: string): Factors {
    const [beta1, beta2] = this.#betas
    const step = this.#state.nextStep(name)
    const decay = this.#decayOf(name)
    const isOfValue = this.#decays === 'value'
    return {
      step,
      rate: this.learningRate / (1 - beta1 ** step),
      scale: 1 / Math.sqrt(1 - beta2 ** step),
      keep: isOfValue ? 1 - this.learningRate * decay : 1,
      added: isOfValue ? 0 : decay,
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
