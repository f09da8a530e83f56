import { choice, count, declareOptions, flag, finite, where, type Rules } from '@tsrun/core'
import type { Tensor, Tensor4D } from '@tensorflow/tfjs-core'
import { fusedPasses, withLazyGradients } from '../autograd/tape.ts'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { checkInput } from '../model/recording.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { runKernel, tf } from '../tfjs/tfjs.ts'
import { activate, activations, type Activation } from './activations.ts'
import { heUniform, zeros } from './init.ts'
import { createParameter } from './initialize.ts'

/** Options of `Conv2d`. */
export interface Conv2dOptions {
  /** The prefix of the names of the parameters: `<name>.weight`, `<name>.bias`. */
  readonly name: string
  /** The number of channels of the input. */
  readonly inputs: number
  /** The number of channels of the output. */
  readonly outputs: number
  /** The size of the kernel: height and width, or both. */
  readonly kernel: number | readonly [height: number, width: number]
  /** The distance between neighbouring windows; default 1. */
  readonly stride?: number | readonly [height: number, width: number]
  /**
   * The zeros around an image: a number of rows and columns on each side, or `valid` for none
   * (default). With `same` and stride 1, the output has the size of the image.
   */
  readonly padding?: number | 'valid' | 'same'
  /** Whether to add a bias; default true. */
  readonly bias?: boolean
  /** The activation function of the output; default `linear`, the identity. */
  readonly activation?: Activation
  /** The seed of the initial values; default 0. The values also depend on the names of the parameters. */
  readonly seed?: number
}

type Pair = readonly [number, number]

const size = count({ from: 1 })
const sizeRule = where<number | Pair>(
  (value) => size.is(value) || (Array.isArray(value) && value.length === 2 && value.every(size.is)),
  'a positive integer, or a pair [height, width] of them',
)

const readOptions = declareOptions({
  name: where<string>(
    (value) => typeof value === 'string',
    'the prefix of the names of its parameters, as in conv1',
  ),
  inputs: size,
  outputs: size,
  kernel: sizeRule,
  stride: sizeRule.default(1),
  padding: where<number | 'valid' | 'same'>(
    (value) => value === 'valid' || value === 'same' || count().is(value),
    "an integer from 0, 'valid' or 'same'",
  ).default('valid'),
  bias: flag.default(true),
  activation: choice(...activations).default('linear'),
  seed: finite().default(0),
} satisfies Rules<Conv2dOptions>)

/**
 * A 2-D convolution of images [batch, height, width, channels]. The kernel [height, width, inputs,
 * outputs] is initialized He uniform, and the bias [outputs] with zeros.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export class Conv2d implements Module {
  readonly weight: Parameter
  readonly bias: Parameter | undefined
  readonly options: Readonly<Required<Conv2dOptions>>

  constructor(options: Conv2dOptions) {
    this.options = readOptions(options)
    const { name, inputs, outputs, kernel, seed, bias } = this.options
    const shape = [...pairOf(kernel), inputs, outputs]
    this.weight = createParameter(`${name}.weight`, shape, heUniform(), seed)
    this.bias = bias ? createParameter(`${name}.bias`, [outputs], zeros) : undefined
  }

  get parameters(): readonly Parameter[] {
    return this.bias === undefined ? [this.weight] : [this.weight, this.bias]
  }

  isRepeatable(): boolean {
    return true
  }

  /**
   * @param x - [batch, height, width, inputs]
   * @returns [batch, (height + 2 padding - kernel) / stride + 1, ..., outputs]
   * @throws ERR_TSR_ARGUMENT for other inputs
   */
  forward(x: Tensor): Tensor {
    return convolve(this, x)
  }
}

/** @param isPooled - whether the gradient of the output already includes the gradient of the ReLU */
function convolve({ weight, bias, options }: Conv2d, x: Tensor, isPooled = false): Tensor {
  const { inputs, padding, activation } = options
  checkInput(x, weight, ['batch', 'height', 'width', inputs])
  const pad = typeof padding === 'number' ? around(padding) : padding
  const strides = pairOf(options.stride)
  if (bias === undefined) {
    const y = tf.conv2d(x as Tensor4D, weight.value as Tensor4D, strides, pad)
    return activate(activation, y)
  }
  const operands = { x, filter: weight.value, bias: bias.value }
  const attributes = { strides, pad, dilations: 1, dataFormat: 'NHWC' }
  const fused = activation === 'relu' ? 'relu' : 'linear'
  // `reluGradient` is not differentiable, so nested gradients cannot use it.
  const pass = fusedPasses().reluGradient
  const y = withLazyGradients(operands, {
    saves: ['x', 'filter'],
    savesOutput: fused === 'relu' && !isPooled,
    forward: () => runKernel('FusedConv2D', operands, { ...attributes, activation: fused }),
    gradients(dy, { x, filter }, output) {
      const masked = (y: Tensor) => pass?.(dy, y) ?? tf.mul(dy, tf.step(y))
      const slopes = output === undefined ? dy : masked(output)
      const images = { dy: slopes, filter }
      const filters = { x, dy: slopes }
      return {
        x: () => runKernel('Conv2DBackpropInput', images, { ...attributes, inputShape: x.shape }),
        filter: () =>
          runKernel('Conv2DBackpropFilter', filters, { ...attributes, filterShape: filter.shape }),
        bias: () => tf.sum(slopes, [0, 1, 2]),
      }
    },
  })
  return fused === 'relu' ? y : activate(activation, y)
}

function pairOf(size: number | Pair): [number, number] {
  return typeof size === 'number' ? [size, size] : [...size]
}

/** Returns explicit padding: given a number, TensorFlow.js computes wrong sizes for some kernels. */
function around(padding: number): [Ends, Ends, Ends, Ends] {
  return [
    [0, 0],
    [padding, padding],
    [padding, padding],
    [0, 0],
  ]
}

type Ends = [number, number]

/** Options of `MaxPool2d` and `AvgPool2d`. */
export interface PoolOptions {
  /** The size of the windows: height and width, or both. */
  readonly size: number | readonly [height: number, width: number]
  /** The step between windows; default `size`. */
  readonly stride?: number | readonly [height: number, width: number]
}

const readPoolOptions = declareOptions({
  size: sizeRule,
  stride: sizeRule.optional(),
} satisfies Rules<PoolOptions>)

abstract class Pool2d implements Module {
  readonly parameters: readonly Parameter[] = []
  readonly size: [number, number]
  readonly stride: [number, number]
  protected abstract readonly pool: typeof tf.maxPool

  constructor(options: PoolOptions) {
    const { size, stride = size } = readPoolOptions(options)
    this.size = pairOf(size)
    this.stride = pairOf(stride)
  }

  isRepeatable(): boolean {
    return true
  }

  /**
   * @param x - [batch, height, width, channels]
   * @returns [batch, floor((height - size) / stride) + 1, ..., channels]
   */
  forward(x: Tensor): Tensor {
    return this.pool(x as Tensor4D, this.size, this.stride, 'valid')
  }
}

/** The largest value of each window, channel by channel. Windows do not extend past the image. */
export class MaxPool2d extends Pool2d {
  protected readonly pool = tf.maxPool
}

/**
 * Applies a Conv2d with a ReLU, then a MaxPool2d. The gradient of the pooling includes the gradient of
 * the ReLU. Returns undefined for other layers, or if the backend has no such gradient.
 */
export function convolveAndPool(
  conv: Module,
  pool: Module | undefined,
  x: Tensor,
): Tensor | undefined {
  if (fusedPasses().rectifiesPooling !== true) return undefined
  if (!isPlain(conv, Conv2d) || !isPlain(pool, MaxPool2d)) return undefined
  if (conv.bias === undefined || conv.options.activation !== 'relu') return undefined
  const y = convolve(conv, x, true)
  const { size: filterSize, stride: strides } = pool
  const attributes = { filterSize, strides, pad: 'valid', isRectified: true }
  return withLazyGradients(
    { x: y },
    {
      forward: () => pool.forward(y),
      gradients: (dy, { x: input }) => ({
        x: () => runKernel('MaxPoolGrad', { dy, input }, attributes),
      }),
    },
  )
}

/** Whether a layer is an instance of exactly this class, and its `forward` was not replaced. */
function isPlain<M extends Module>(
  layer: Module | undefined,
  type: { readonly prototype: M },
): layer is M {
  return layer?.constructor === type && layer.forward === type.prototype.forward
}

/** The mean of each window, channel by channel. Windows do not extend past the image. */
export class AvgPool2d extends Pool2d {
  protected readonly pool = tf.avgPool
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
