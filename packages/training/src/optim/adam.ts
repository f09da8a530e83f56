import { declareOptions, finite, where, type Rules } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { adamStep, addScaled, type AdamStep } from '../backend/arithmetic.ts'
import { currentBackend, isHostAccessible } from '../backend/current.ts'
import type { Parameter } from '../model/parameter.ts'
import type { UpdatesInPlace } from '../tfjs/backend.ts'
import { tf } from '../tfjs/tfjs.ts'
import {
  checkStep,
  decayByName,
  decayRules,
  factorRule,
  type DecayOptions,
  type Optimizer,
} from './optimizer.ts'
import { type Gradients, ParameterStates, type OptimizerState } from './state.ts'
import { addDecay, updateInPlace, updateOnDevice, updateOnHost } from './update-parameters.ts'

export interface AdamOptions extends DecayOptions {
  /** Default 0.001. */
  readonly learningRate?: number
  /** The decay rates of the mean and the mean square of the gradients; default [0.9, 0.999]. */
  readonly betas?: readonly [number, number]
  /** Keeps the step finite when gradients vanish; default 1e-8. */
  readonly epsilon?: number
}

export interface AdamWOptions extends AdamOptions {
  /** Each step subtracts learningRate * weightDecay times the value; default 0.01. */
  readonly weightDecay?: number
}

type Betas = readonly [number, number]

const betaRule = finite({ from: 0, below: 1 })

const readOptions = declareOptions({
  learningRate: factorRule.default(1e-3),
  betas: where<Betas>((value) => Array.isArray(value) && value.length === 2, 'two numbers').default(
    [0.9, 0.999],
  ),
  epsilon: factorRule.default(1e-8),
  ...decayRules,
} satisfies Rules<AdamOptions>)

interface Factors extends Pick<AdamStep, 'rate' | 'scale' | 'keep'> {
  /** The number of the step; the first is 1. */
  readonly step: number
  /** L2 penalty: the multiple of the value that is added to the gradient. */
  readonly added: number
}

/** Adam and AdamW differ only in what the weight decay changes. */
abstract class AdamOptimizer implements Optimizer {
  learningRate: number
  readonly options: Readonly<Record<string, unknown>>
  readonly #betas: Betas
  readonly #epsilon: number
  readonly #decayOf: (name: string) => number
  readonly #decays: 'gradient' | 'value'
  readonly #state = new ParameterStates(['mean', 'square'])

  /**
   * @param decays - what the weight decay changes: the gradient, or directly the value, in proportion to
   *   the learning rate and without an effect on the moments
   * @param weightDecay - the default of this option
   */
  constructor(options: AdamOptions, decays: 'gradient' | 'value', weightDecay: number) {
    const complete = readOptions(options)
    const { learningRate, ...others } = complete
    const { betas, epsilon, withoutDecay } = others
    const decay = complete.weightDecay ?? weightDecay
    betaRule.check('betas[0]', betas[0])
    betaRule.check('betas[1]', betas[1])
    this.learningRate = learningRate
    this.options = { ...others, weightDecay: decay }
    this.#betas = betas
    this.#epsilon = epsilon
    this.#decayOf = decayByName(decay, withoutDecay)
    this.#decays = decays
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    checkStep(this, parameters, gradients)
    this.#state.checkSizes(parameters, gradients)
    if (!isHostAccessible()) {
      const updates = currentBackend().updatesInPlace?.()
      if (updates === undefined) this.#stepOnDevice(parameters, gradients)
      else this.#stepInPlace(parameters, gradients, updates)
      return
    }
    const betas = this.#betas
    const epsilon = this.#epsilon
    updateOnHost(parameters, gradients, ({ name, value: { size } }) => {
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
    const epsilon = this.#epsilon
    updateOnDevice(parameters, gradients, this.#state, ({ name }) => {
      const { rate, scale, keep, added } = this.#factors(name)
      const kind = [keep === 1, added === 0, beta1, beta2, epsilon].join(' ')
      return {
        name: `adam ${kind}`,
        factors: [rate, scale, keep, added],
        compute: (value, given, [mean, square], factors) => {
          const [rates, scales, keeps, decays] = factors as [Tensor, Tensor, Tensor, Tensor]
          const gradient = addDecay(given, added === 0 ? 0 : decays, value)
          const nextMean = decay(beta1, mean!, gradient)
          const nextSquare = decay(beta2, square!, tf.square(gradient))
          const deviation = tf.add(tf.mul(tf.sqrt(nextSquare), scales), epsilon)
          const kept = keep === 1 ? value : tf.mul(value, keeps)
          const next = tf.sub(kept, tf.div(tf.mul(nextMean, rates), deviation))
          return [next, nextMean, nextSquare]
        },
      }
    })
  }

  #stepInPlace(
    parameters: readonly Parameter[],
    gradients: Gradients,
    updates: UpdatesInPlace,
  ): void {
    const { learningRate } = this
    const [betas, epsilon, state] = [this.#betas, this.#epsilon, this.#state]
    const addedOf = ({ name }: Parameter): number => this.#addedOf(name)
    updateInPlace(parameters, gradients, updates, addedOf, (parameter, gradient, store) => {
      const { name, shape, value } = parameter
      const { step, keep } = this.#factors(name)
      const [mean, square] = state.takeFromDevice(name, shape)
      const kept = keep === 1 ? value : tf.tidy(() => tf.keep(tf.mul(value, keep)))
      if (kept !== value) value.dispose()
      const factors = { learningRate, betas, step, epsilon }
      updates.adam([kept, mean!, square!], gradient, factors, ([next, ...moments]) => {
        store(next!)
        state.putOnDevice(name, moments)
      })
    })
  }

  /** The factors of the next step of a parameter. They correct for moments that start at zero. */
  #factors(name: string): Factors {
    const [beta1, beta2] = this.#betas
    const step = this.#state.nextStep(name)
    return {
      step,
      rate: this.learningRate / (1 - beta1 ** step),
      scale: 1 / Math.sqrt(1 - beta2 ** step),
      keep: this.#decays === 'value' ? 1 - this.learningRate * this.#decayOf(name) : 1,
      added: this.#addedOf(name),
    }
  }

  #addedOf(name: string): number {
    return this.#decays === 'gradient' ? this.#decayOf(name) : 0
  }
}

/** beta former + (1 - beta) next */
function decay(beta: number, former: Tensor, next: Tensor): Tensor {
  return tf.add(tf.mul(former, beta), tf.mul(next, 1 - beta))
}

/**
 * Adam (Kingma & Ba, 2015), as torch.optim.Adam defines it: g = g + weightDecay p,
 * m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
 * p = p - learningRate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon).
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option or one that is out of range
 */
export class Adam extends AdamOptimizer {
  constructor(options: AdamOptions = {}) {
    super(options, 'gradient', 0)
  }
}

/**
 * Adam with decoupled weight decay (Loshchilov & Hutter, 2019), as torch.optim.AdamW defines it:
 * p = p - learningRate weightDecay p, followed by the step of {@link Adam} without weight decay.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option or one that is out of range
 *
 * @example
 * const optimizer = new AdamW({ weightDecay: 0.1, withoutDecay: ['**.bias', '**.ln_1.*'] })
 */
export class AdamW extends AdamOptimizer {
  constructor(options: AdamWOptions = {}) {
    super(options, 'value', 0.01)
  }
}
