import { reachesTensors } from '../backend/bridge/select.ts'
import { hostVector, type HostVector } from '../backend/host-vector.ts'
import { tf } from '../backend/tensorflow.ts'
import { addScaled } from '../backend/vector-math.ts'
import type { Parameter } from '../nn/parameter.ts'
import { DeviceState, updateOnDevice } from './on-device.ts'
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
  readonly #deviceVelocities = new DeviceState()
  readonly #velocities = new Map<string, HostVector>()

  constructor({ learningRate, momentum = 0 }: SGDOptions) {
    checkOption('learningRate', learningRate, 0)
    checkOption('momentum', momentum, 0, 1)
    this.learningRate = learningRate
    this.#momentum = momentum
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    if (!reachesTensors()) {
      this.#stepOnDevice(parameters, gradients)
      return
    }
    const rate = this.learningRate
    const momentum = this.#momentum
    updateParameters(parameters, gradients, (name, length) => {
      const former = this.#velocities.get(name)
      const velocity = momentum === 0 ? undefined : (former ?? this.#start(name, length))
      return (next, value, gradient) => {
        if (velocity === undefined) {
          addScaled(next, value, -rate, gradient)
          return
        }
        const { values } = velocity
        if (former === undefined) values.set(gradient)
        else addScaled(values, gradient, momentum, values)
        addScaled(next, value, -rate, values)
      }
    })
  }

  #stepOnDevice(parameters: readonly Parameter[], gradients: Gradients): void {
    const momentum = this.#momentum
    updateOnDevice(parameters, gradients, (value, gradient, name) => {
      const velocity =
        momentum === 0
          ? gradient
          : this.#deviceVelocities.replace(name, (former) =>
              former === undefined
                ? tf.clone(gradient)
                : tf.add(tf.mul(former, momentum), gradient),
            )
      return tf.sub(value, tf.mul(velocity, this.learningRate))
    })
  }

  #start(name: string, length: number): HostVector {
    const velocity = hostVector(length)
    this.#velocities.set(name, velocity)
    return velocity
  }
}
