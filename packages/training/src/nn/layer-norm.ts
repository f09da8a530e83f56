import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../backend/tfjs.ts'
import type { Separable } from '../model/module.ts'
import { normalize } from './normalize.ts'
import type { Parameter } from '../model/parameter.ts'
import { createParameter } from './initialize.ts'

export interface NormOptions {
  /** Prefix of the parameters' names: `<name>.weight`, and `<name>.bias` of a LayerNorm. */
  readonly name: string
  /** Length of the last axis. */
  readonly width: number
  /** Added to the variance; default 1e-5. */
  readonly epsilon?: number
}

/** Mean 0 and deviation 1 over the last axis, then times `weight` plus `bias` (Ba et al., 2016). */
export class LayerNorm implements Separable {
  readonly parameters: readonly [weight: Parameter, bias: Parameter]
  readonly #epsilon: number

  constructor({ name, width, epsilon = 1e-5 }: NormOptions) {
    this.#epsilon = epsilon
    this.parameters = [
      createParameter(`${name}.weight`, [width], new Float32Array(width).fill(1)),
      createParameter(`${name}.bias`, [width], new Float32Array(width)),
    ]
  }

  forward(x: Tensor): Tensor {
    return this.forwardWith(
      this.parameters.map(({ value }) => value),
      x,
    )
  }

  forwardWith([weight, bias]: readonly Tensor[], x: Tensor): Tensor {
    const options = { centers: true, epsilon: this.#epsilon }
    return tf.add(normalize(x, weight!, options), bias!)
  }
}

/** Mean square 1 over the last axis, then times `weight` (Zhang & Sennrich, 2019). */
export class RMSNorm implements Separable {
  readonly parameters: readonly [weight: Parameter]
  readonly #epsilon: number

  constructor({ name, width, epsilon = 1e-5 }: NormOptions) {
    this.#epsilon = epsilon
    this.parameters = [createParameter(`${name}.weight`, [width], new Float32Array(width).fill(1))]
  }

  forward(x: Tensor): Tensor {
    return this.forwardWith([this.parameters[0].value], x)
  }

  forwardWith([weight]: readonly Tensor[], x: Tensor): Tensor {
    return normalize(x, weight!, { centers: false, epsilon: this.#epsilon })
  }
}
