import type { Tensor } from '@tensorflow/tfjs-core'
import { reachesTensors } from '../backend/bridge/select.ts'
import { tf } from '../backend/tensorflow.ts'
import { adamStep } from '../backend/vector-math.ts'
import type { Parameter } from '../nn/parameter.ts'
import { updateOnDevice } from './on-device.ts'
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

/**
 * Adam (Kingma & Ba, 2015), as torch.optim.Adam defines it:
 * m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
 * p = p - learningRate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon).
 *
 * @throws ERR_TSR_ARGUMENT when an option is out of range
 */
export class Adam implements Optimizer {
  learningRate: number
  readonly #betas: readonly [number, number]
  readonly #epsilon: number
  readonly #state = new StateOfParameters(['mean', 'square'])

  constructor({ learningRate = 1e-3, betas = [0.9, 0.999], epsilon = 1e-8 }: AdamOptions = {}) {
    checkOption('learningRate', learningRate, 0)
    checkOption('betas[0]', betas[0], 0, 1)
    checkOption('betas[1]', betas[1], 0, 1)
    checkOption('epsilon', epsilon, 0)
    this.learningRate = learningRate
    this.#betas = betas
    this.#epsilon = epsilon
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    if (!reachesTensors()) {
      this.#stepOnDevice(parameters, gradients)
      return
    }
    const betas = this.#betas
    const epsilon = this.#epsilon
    updateParameters(parameters, gradients, ({ name, value: { size } }) => {
      const state = this.#state
      const means = state.onHost(name, 'mean', size).vector
      const squares = state.onHost(name, 'square', size).vector
      const { rate, scale } = this.#corrected(state.nextStep(name))
      return (next, value, gradient) => {
        const { values: mean } = means
        const { values: square } = squares
        adamStep({ next, value, gradient, mean, square }, { rate, scale, epsilon, betas })
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
      const { rate, scale } = this.#corrected(state.nextStep(name))
      const deviation = tf.add(tf.mul(tf.sqrt(square), scale), this.#epsilon)
      return tf.sub(value, tf.div(tf.mul(mean, rate), deviation))
    })
  }

  /** The means begin at zero, which is corrected by their weight. */
  #corrected(step: number): { readonly rate: number; readonly scale: number } {
    const [beta1, beta2] = this.#betas
    const rate = this.learningRate / (1 - beta1 ** step)
    return { rate, scale: 1 / Math.sqrt(1 - beta2 ** step) }
  }
}

/** former := beta former + (1 - beta) next, zero at first. */
function decay(beta: number, next: Tensor): (former: Tensor | undefined) => Tensor {
  return (former) => {
    const part = tf.mul(next, 1 - beta)
    return former === undefined ? part : tf.add(tf.mul(former, beta), part)
  }
}
