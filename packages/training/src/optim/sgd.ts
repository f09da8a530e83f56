import type { Tensor } from '@tensorflow/tfjs-core'
import { reachesTensors } from '../backend/bridge/select.ts'
import { sumScaled } from '../backend/device-math.ts'
import { currentUpdates, type EagerUpdates } from '../backend/eager-updates.ts'
import { tf } from '../backend/tensorflow.ts'
import { addScaled } from '../backend/vector-math.ts'
import type { Parameter } from '../nn/parameter.ts'
import { updateInPlace, updateOnDevice } from './on-device.ts'
import { checkOption, updateParameters, type Gradients, type Optimizer } from './optimizer.ts'
import { StateOfParameters, type OptimizerState } from './state.ts'

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
  readonly #state: StateOfParameters

  constructor({ learningRate, momentum = 0 }: SGDOptions) {
    checkOption('learningRate', learningRate, 0)
    checkOption('momentum', momentum, 0, 1)
    this.learningRate = learningRate
    this.#momentum = momentum
    this.#state = new StateOfParameters(momentum === 0 ? [] : ['velocity'])
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    if (!reachesTensors()) {
      const updates = currentUpdates()
      if (updates === undefined) this.#stepOnDevice(parameters, gradients)
      else this.#stepInPlace(parameters, gradients, updates)
      return
    }
    const rate = this.learningRate
    const momentum = this.#momentum
    updateParameters(parameters, gradients, ({ name, value: { size } }) => {
      this.#state.nextStep(name)
      const kept = momentum === 0 ? undefined : this.#state.onHost(name, 'velocity', size)
      return (next, value, gradient) => {
        if (kept === undefined) {
          addScaled(next, value, -rate, gradient)
          return
        }
        const { values } = kept.vector
        if (kept.isNew) values.set(gradient)
        else addScaled(values, gradient, momentum, values)
        addScaled(next, value, -rate, values)
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
    const momentum = this.#momentum
    updateOnDevice(parameters, gradients, (value, gradient, { name, shape }) => {
      this.#state.nextStep(name)
      const follow = (former: Tensor | undefined): Tensor =>
        former === undefined ? tf.clone(gradient) : sumScaled(gradient, momentum, former)
      const velocity =
        momentum === 0 ? gradient : this.#state.onDevice(name, 'velocity', shape, follow)
      return sumScaled(value, -this.learningRate, velocity)
    })
  }

  #stepInPlace(
    parameters: readonly Parameter[],
    gradients: Gradients,
    updates: EagerUpdates,
  ): void {
    const [rate, momentum, state] = [this.learningRate, this.#momentum, this.#state]
    updateInPlace(parameters, gradients, updates, ({ name, shape, value }, gradient, store) => {
      state.nextStep(name)
      if (momentum === 0) {
        updates.descend(value, gradient, rate, ([next]) => {
          store(next!)
        })
        return
      }
      const [velocity] = state.takeFromDevice(name, shape)
      const factors = { rate, momentum }
      updates.descendWithMomentum([value, velocity!], gradient, factors, ([next, kept]) => {
        store(next!)
        state.putOnDevice(name, [kept!])
      })
    })
  }
}
