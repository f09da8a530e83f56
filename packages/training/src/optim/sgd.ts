import { refuseUnknown, tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { checkFlag } from '../arguments.ts'
import { reachesTensors } from '../backend/bridge/select.ts'
import { sumScaled } from '../backend/device-math.ts'
import { currentUpdates, type EagerUpdates } from '../backend/tensorflow/eager-updates.ts'
import { tf } from '../backend/tfjs.ts'
import { addScaled } from '../backend/vector-math.ts'
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

export interface SGDOptions extends DecayOptions {
  readonly learningRate: number
  /** Share of the former step that is added to this one; default 0. */
  readonly momentum?: number
  /** Whether a step looks ahead by the momentum that is to come (Nesterov); default false. */
  readonly nesterov?: boolean
}

const KNOWN = Object.keys({
  learningRate: true,
  momentum: true,
  nesterov: true,
  weightDecay: true,
  withoutDecay: true,
} satisfies Record<keyof SGDOptions, true>)

/**
 * Stochastic gradient descent with momentum, as torch.optim.SGD defines it: g = g + weightDecay p,
 * v = momentum v + g (v = g at first), p = p - learningRate v, and with `nesterov` (Sutskever et al.,
 * 2013) p = p - learningRate (g + momentum v).
 *
 * @throws ERR_TSR_ARGUMENT when an option is out of range, or none that there is
 */
export class SGD implements Optimizer {
  learningRate: number
  readonly #momentum: number
  readonly #nesterov: boolean
  readonly #decayOf: (name: string) => number
  readonly #state: StateOfParameters

  constructor(options: SGDOptions) {
    refuseUnknown(options, KNOWN)
    const { learningRate, momentum = 0, nesterov = false } = options
    checkOption('learningRate', learningRate, 0)
    checkOption('momentum', momentum, 0, 1)
    checkFlag('nesterov', nesterov)
    if (nesterov && momentum === 0) {
      const expected = 'above 0, with nesterov'
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'momentum', value: momentum, expected })
    }
    this.learningRate = learningRate
    this.#momentum = momentum
    this.#nesterov = nesterov
    this.#decayOf = decayByName(options)
    this.#state = new StateOfParameters(momentum === 0 ? [] : ['velocity'])
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    checkStep(parameters, gradients)
    this.#state.checkSizes(parameters, gradients)
    if (!reachesTensors()) {
      // updates in place know no look ahead
      const updates = this.#nesterov ? undefined : currentUpdates()
      if (updates === undefined) this.#stepOnDevice(parameters, gradients)
      else this.#stepInPlace(parameters, gradients, updates)
      return
    }
    const rate = this.learningRate
    const momentum = this.#momentum
    updateParameters(parameters, gradients, ({ name, value: { size } }) => {
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
    updateOnDevice(parameters, gradients, (value, given, { name, shape }) => {
      this.#state.nextStep(name)
      const decay = this.#decayOf(name)
      const gradient = addDecay(given, decay, value)
      const follow = (former: Tensor | undefined): Tensor =>
        former === undefined ? tf.clone(gradient) : sumScaled(gradient, momentum, former)
      const velocity =
        momentum === 0 ? gradient : this.#state.onDevice(name, 'velocity', shape, follow)
      const direction = this.#nesterov ? tf.add(gradient, tf.mul(velocity, momentum)) : velocity
      return sumScaled(value, -this.learningRate, direction)
    })
  }

  #stepInPlace(
    parameters: readonly Parameter[],
    gradients: Gradients,
    updates: EagerUpdates,
  ): void {
    const [rate, momentum, state] = [this.learningRate, this.#momentum, this.#state]
    updateInPlace(parameters, gradients, updates, ({ name, shape, value }, given, store) => {
      state.nextStep(name)
      const gradient = addDecay(given, this.#decayOf(name), value)
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
      if (gradient !== given) gradient.dispose()
    })
  }
}
