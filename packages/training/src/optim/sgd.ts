import { argumentError, declareOptions, finite, flag, type Rules } from '@tsrun/core'
import { addScaled } from '../backend/arithmetic.ts'
import type { Parameter } from '../model/parameter.ts'
import type { Gradient, Store, UpdatesInPlace } from '../tfjs/backend.ts'
import { tf } from '../tfjs/tfjs.ts'
import { decayRules, factorRule, type DecayOptions } from './optimizer.ts'
import { BaseOptimizer, type DeviceUpdate, type HostUpdate } from './update-parameters.ts'

/** Options of `SGD`. */
export interface SGDOptions extends DecayOptions {
  readonly learningRate: number
  /** The fraction of the previous step that is added to the current step; default 0. */
  readonly momentum?: number
  /** Whether to use Nesterov momentum; default false. */
  readonly nesterov?: boolean
}

const readOptions = declareOptions({
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
    const { learningRate, ...others } = readOptions(options)
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
