import { declareOptions, flag, finite, tsrError, type Rules } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { addScaled } from '../backend/arithmetic.ts'
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

export interface SGDOptions extends DecayOptions {
  readonly learningRate: number
  /** The fraction of the previous step that is added to this one; default 0. */
  readonly momentum?: number
  /** Whether to use Nesterov momentum, which looks one step ahead; default false. */
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
export class SGD implements Optimizer {
  learningRate: number
  readonly options: Readonly<Record<string, unknown>>
  readonly #momentum: number
  readonly #nesterov: boolean
  readonly #decayOf: (name: string) => number
  readonly #state: ParameterStates

  constructor(options: SGDOptions) {
    const { learningRate, momentum, nesterov, weightDecay, withoutDecay } = readOptions(options)
    if (nesterov && momentum === 0) {
      const expected = 'a number > 0, with nesterov'
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'momentum', value: momentum, expected })
    }
    this.learningRate = learningRate
    this.options = { momentum, nesterov, weightDecay, withoutDecay }
    this.#momentum = momentum
    this.#nesterov = nesterov
    this.#decayOf = decayByName(weightDecay ?? 0, withoutDecay)
    this.#state = new ParameterStates(momentum === 0 ? [] : ['velocity'])
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    checkStep(this, parameters, gradients)
    this.#state.checkSizes(parameters, gradients)
    if (!isHostAccessible()) {
      // The backend's in-place updates do not support Nesterov momentum.
      const updates = this.#nesterov ? undefined : currentBackend().updatesInPlace?.()
      if (updates === undefined) this.#stepOnDevice(parameters, gradients)
      else this.#stepInPlace(parameters, gradients, updates)
      return
    }
    const rate = this.learningRate
    const momentum = this.#momentum
    updateOnHost(parameters, gradients, ({ name, value: { size } }) => {
      this.#state.nextStep(name)
      const kept = momentum === 0 ? undefined : this.#state.onHost(name, 'velocity', size)
      const decay = this.#decayOf(name)
      return (next, value, given) => {
        const gradient = decay === 0 ? given : next
        if (decay !== 0) addScaled(gradient, given, decay, value)
        if (kept === undefined) {
          addScaled(next, value, -rate, gradient)
          return
        }
        const { values } = kept.vector
        if (kept.isNew) values.set(gradient)
        else addScaled(values, gradient, momentum, values)
        const direction = this.#nesterov ? next : values
        if (this.#nesterov) addScaled(direction, gradient, momentum, values)
        addScaled(next, value, -rate, direction)
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
    const momentum = this.#momentum
    updateOnDevice(parameters, gradients, this.#state, ({ name }) => {
      this.#state.nextStep(name)
      const decay = this.#decayOf(name)
      return {
        name: `sgd ${momentum} ${String(this.#nesterov)} ${String(decay === 0)}`,
        factors: decay === 0 ? [-this.learningRate] : [-this.learningRate, decay],
        compute: (value, given, [former], factors) => {
          const [rate, decays] = factors as [Tensor, Tensor?]
          const gradient = addDecay(given, decays ?? 0, value)
          const velocity = former && tf.add(gradient, tf.mul(former, momentum))
          const direction =
            velocity && this.#nesterov ? tf.add(gradient, tf.mul(velocity, momentum)) : velocity
          const next = tf.add(value, tf.mul(direction ?? gradient, rate))
          return velocity === undefined ? [next] : [next, velocity]
        },
      }
    })
  }

  #stepInPlace(
    parameters: readonly Parameter[],
    gradients: Gradients,
    updates: UpdatesInPlace,
  ): void {
    const [rate, momentum, state] = [this.learningRate, this.#momentum, this.#state]
    const decayOf = ({ name }: Parameter): number => this.#decayOf(name)
    updateInPlace(parameters, gradients, updates, decayOf, (parameter, gradient, store) => {
      const { name, shape, value } = parameter
      state.nextStep(name)
      if (momentum === 0) {
        updates.descend(value, gradient, rate, ([next]) => {
          store(next!)
        })
      } else {
        const [velocity] = state.takeFromDevice(name, shape)
        const factors = { rate, momentum }
        updates.descendWithMomentum([value, velocity!], gradient, factors, ([next, kept]) => {
          store(next!)
          state.putOnDevice(name, [kept!])
        })
      }
    })
  }
}
