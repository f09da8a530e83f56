import { argumentError, declareOptions, finite, flag, where, type Rules } from '@tsrun/core'
import { adamStep, addScaled } from '../backend/arithmetic.ts'
import type { Parameter } from '../model/parameter.ts'
import type { Gradient, Store, UpdatesInPlace } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import {
  BaseOptimizer,
  decayRules,
  factorRule,
  type DecayOptions,
  type DeviceUpdate,
  type HostUpdate,
} from './optimizer.ts'

/** Options of `Adam`. */
export interface AdamOptions extends DecayOptions {
  /** Default 0.001. */
  readonly learningRate?: number
  /** The decay rates of the mean and the mean square of the gradients; default [0.9, 0.999]. */
  readonly betas?: readonly [number, number]
  /**
   * A small number that is added to the denominator of a step, so that the step stays finite; default
   * 1e-8.
   */
  readonly epsilon?: number
}

/** Options of `AdamW`. */
export interface AdamWOptions extends AdamOptions {
  /**
   * Decoupled weight decay: each step subtracts learningRate weightDecay times the parameter; default
   * 0.01.
   */
  readonly weightDecay?: number
}

type Betas = readonly [number, number]

const betaRule = finite({ from: 0, below: 1 })

const readAdam = declareOptions({
  learningRate: factorRule.default(1e-3),
  betas: where<Betas>((value) => Array.isArray(value) && value.length === 2, 'two numbers').default(
    [0.9, 0.999],
  ),
  epsilon: factorRule.default(1e-8),
  ...decayRules,
} satisfies Rules<AdamOptions>)

/** The common part of Adam and AdamW, which differ only in how they apply weight decay. */
abstract class AdamOptimizer extends BaseOptimizer {
  readonly #betas: Betas
  readonly #epsilon: number
  readonly #decays: 'gradient' | 'value'

  /**
   * @param decays - `gradient` for L2 regularization (Adam), `value` for decoupled weight decay (AdamW)
   * @param weightDecay - the default of the option `weightDecay`
   */
  constructor(options: AdamOptions, decays: 'gradient' | 'value', weightDecay: number) {
    const { learningRate, ...others } = readAdam(options)
    const { betas, epsilon } = others
    betaRule.check('betas[0]', betas[0])
    betaRule.check('betas[1]', betas[1])
    const decay = others.weightDecay ?? weightDecay
    super(learningRate, { ...others, weightDecay: decay }, ['mean', 'square'])
    this.#betas = betas
    this.#epsilon = epsilon
    this.#decays = decays
  }

  protected override addedOf(name: string): number {
    return this.#decays === 'gradient' ? this.decayOf(name) : 0
  }

  protected override onHost(name: string): HostUpdate {
    const factors = this.#factors(name)
    return (arrays) => {
      adamStep(arrays, factors)
    }
  }

  protected override onDevice(name: string): DeviceUpdate {
    const { rate, scale, keep, epsilon, betas } = this.#factors(name)
    const [beta1, beta2] = betas
    return {
      name: `adam ${[keep === 1, beta1, beta2, epsilon].join(' ')}`,
      factors: [rate, scale, keep],
      compute: (value, gradient, [mean, square], factors) => {
        const [rates, scales, keeps] = factors as [Tensor, Tensor, Tensor]
        const nextMean = decay(beta1, mean!, gradient)
        const nextSquare = decay(beta2, square!, tf.square(gradient))
        const deviation = tf.add(tf.mul(tf.sqrt(nextSquare), scales), epsilon)
        const kept = keep === 1 ? value : tf.mul(value, keeps)
        const next = tf.sub(kept, tf.div(tf.mul(nextMean, rates), deviation))
        return [next, nextMean, nextSquare]
      },
    }
  }

  protected override inPlace(
    updates: UpdatesInPlace,
    { name, shape, value }: Parameter,
    gradient: Gradient,
    store: Store,
  ): void {
    const factors = this.#factors(name)
    const [mean, square] = this.kept.tensorsOf(name, shape)
    updates.adam([value, mean!, square!], gradient, factors, store)
  }

  /** Returns the factors of the next step of a parameter, including the bias corrections. */
  #factors(name: string) {
    const { learningRate } = this
    const [betas, epsilon] = [this.#betas, this.#epsilon]
    const step = this.kept.nextStep(name)
    return {
      learningRate,
      betas,
      epsilon,
      step,
      rate: learningRate / (1 - betas[0] ** step),
      scale: 1 / Math.sqrt(1 - betas[1] ** step),
      keep: this.#decays === 'value' ? 1 - learningRate * this.decayOf(name) : 1,
    }
  }
}

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

/** Options of `SGD`. */
export interface SGDOptions extends DecayOptions {
  readonly learningRate: number
  /** The fraction of the previous step that is added to the current step; default 0. */
  readonly momentum?: number
  /** Whether to use Nesterov momentum; default false. */
  readonly nesterov?: boolean
}

const readSGD = declareOptions({
  learningRate: factorRule,
  momentum: finite({ from: 0, below: 1 }).default(0),
  nesterov: flag.default(false),
  ...decayRules,
} satisfies Rules<SGDOptions>)

/**
 * Stochastic gradient descent with momentum, as torch.optim.SGD defines it: g = g + weightDecay p,
 * v = momentum v + g (initially v = g), p = p - learningRate v; with `nesterov` (Sutskever et al.,
 * 2013) p = p - learningRate (g + momentum v).
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option or one that is out of range
 */
export class SGD extends BaseOptimizer {
  readonly #momentum: number
  readonly #nesterov: boolean

  constructor(options: SGDOptions) {
    const { learningRate, ...others } = readSGD(options)
    const { momentum, nesterov } = others
    if (nesterov && momentum === 0) {
      throw argumentError('momentum', momentum, 'a number > 0, with nesterov')
    }
    super(learningRate, others, momentum === 0 ? [] : ['velocity'])
    this.#momentum = momentum
    this.#nesterov = nesterov
  }

  /** The backend's in-place updates do not support Nesterov momentum. */
  protected override updatesInPlace(): UpdatesInPlace | undefined {
    return this.#nesterov ? undefined : super.updatesInPlace()
  }

  protected override onHost(name: string): HostUpdate {
    const rate = this.learningRate
    const momentum = this.#momentum
    this.kept.nextStep(name)
    return ({ next, value, gradient, former: [former], state: [velocity] }) => {
      if (velocity !== undefined) addScaled(velocity, gradient, momentum, former!)
      if (this.#nesterov) addScaled(next, gradient, momentum, velocity!)
      addScaled(next, value, -rate, this.#nesterov ? next : (velocity ?? gradient))
    }
  }

  protected override onDevice(name: string): DeviceUpdate {
    const momentum = this.#momentum
    this.kept.nextStep(name)
    return {
      name: `sgd ${momentum} ${String(this.#nesterov)}`,
      factors: [-this.learningRate],
      compute: (value, gradient, [former], [rate]) => {
        const velocity = former && tf.add(gradient, tf.mul(former, momentum))
        const direction =
          velocity && this.#nesterov ? tf.add(gradient, tf.mul(velocity, momentum)) : velocity
        const next = tf.add(value, tf.mul(direction ?? gradient, rate!))
        return velocity === undefined ? [next] : [next, velocity]
      },
    }
  }

  protected override inPlace(
    updates: UpdatesInPlace,
    { name, shape, value }: Parameter,
    gradient: Gradient,
    store: Store,
  ): void {
    const [rate, momentum] = [this.learningRate, this.#momentum]
    this.kept.nextStep(name)
    const [velocity] = this.kept.tensorsOf(name, shape)
    if (velocity === undefined) updates.descend(value, gradient, rate, store)
    else updates.descendWithMomentum([value, velocity], gradient, { rate, momentum }, store)
  }
}
