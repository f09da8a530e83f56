import { declareOptions, type Rules } from '@tsrun/core'
import type { Tensor, Tensor4D } from '@tensorflow/tfjs-core'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { tf } from '../tfjs/tfjs.ts'
import { pairOf, sizeRule } from './convolution.ts'

/** Options of `MaxPool2d` and `AvgPool2d`. */
export interface PoolOptions {
  /** The size of the windows: height and width, or both. */
  readonly size: number | readonly [height: number, width: number]
  /** The step between windows; default `size`. */
  readonly stride?: number | readonly [height: number, width: number]
}

const readOptions = declareOptions({
  size: sizeRule,
  stride: sizeRule.optional(),
} satisfies Rules<PoolOptions>)

type Pool = (
  x: Tensor4D,
  size: [number, number],
  stride: [number, number],
  pad: 'valid',
) => Tensor4D

abstract class Pool2d implements Module {
  readonly parameters: readonly Parameter[] = []
  readonly #size: [number, number]
  readonly #stride: [number, number]

  constructor(options: PoolOptions) {
    const { size, stride = size } = readOptions(options)
    this.#size = [...pairOf(size)]
    this.#stride = [...pairOf(stride)]
  }

  protected abstract readonly pool: Pool

  isRepeatable(): boolean {
    return true
  }

  /**
   * @param x - [batch, height, width, channels]
   * @returns [batch, floor((height - size) / stride) + 1, ..., channels]
   */
  forward(x: Tensor): Tensor {
    return this.pool(x as Tensor4D, this.#size, this.#stride, 'valid')
  }
}

/** The largest value of each window, channel by channel. Windows do not extend past the image. */
export class MaxPool2d extends Pool2d {
  protected readonly pool: Pool = (...args) => tf.maxPool(...args)
}

/** The mean of each window, channel by channel. Windows do not extend past the image. */
export class AvgPool2d extends Pool2d {
  protected readonly pool: Pool = (...args) => tf.avgPool(...args)
}

/** Flattens each example to a vector: [batch, ...] to [batch, size]. */
export class Flatten implements Module {
  readonly parameters: readonly Parameter[] = []

  isRepeatable(): boolean {
    return true
  }

  forward(x: Tensor): Tensor {
    return tf.reshape(x, [x.shape[0], sizeOf(x.shape.slice(1))])
  }
}
