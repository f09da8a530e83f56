import type { Tensor } from '@tensorflow/tfjs-core'
import { isHostAccessible } from '../backend/current.ts'
import { scopedTensor, viewOf } from '../backend/host-memory.ts'
import { tf } from '../tfjs/tfjs.ts'
import type { Separable } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { createParameter } from './initialize.ts'

export interface NormOptions {
  /** The prefix of the names of the parameters: `<name>.weight`, and `<name>.bias` for a LayerNorm. */
  readonly name: string
  /** The length of the last axis. */
  readonly width: number
  /** A small number that is added to the variance; default 1e-5. */
  readonly epsilon?: number
}

/**
 * Normalizes the last axis to mean 0 and standard deviation 1. Then multiplies by `weight` and adds
 * `bias` (Ba et al., 2016).
 */
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

  isRepeatable(): boolean {
    return true
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

/** Normalizes the last axis to mean square 1, then multiplies by `weight` (Zhang & Sennrich, 2019). */
export class RMSNorm implements Separable {
  readonly parameters: readonly [weight: Parameter]
  readonly #epsilon: number

  constructor({ name, width, epsilon = 1e-5 }: NormOptions) {
    this.#epsilon = epsilon
    this.parameters = [createParameter(`${name}.weight`, [width], new Float32Array(width).fill(1))]
  }

  isRepeatable(): boolean {
    return true
  }

  forward(x: Tensor): Tensor {
    return this.forwardWith([this.parameters[0].value], x)
  }

  forwardWith([weight]: readonly Tensor[], x: Tensor): Tensor {
    return normalize(x, weight!, { centers: false, epsilon: this.#epsilon })
  }
}

interface NormalizeOptions {
  /** Whether to subtract the mean. */
  readonly centers: boolean
  /** A small number that is added to the variance. */
  readonly epsilon: number
}

/**
 * Returns (x - mean) / sqrt(variance + epsilon) over the last axis, times `scale`. Without centering, the
 * mean is taken as 0 and the variance is the mean square. Differentiable in `x` and `scale`.
 */
function normalize(x: Tensor, scale: Tensor, options: NormalizeOptions): Tensor {
  return tf.customGrad((...args) => {
    const [input, factor, save] = args as unknown as [Tensor, Tensor, (tensors: Tensor[]) => void]
    return isHostAccessible()
      ? onHost(input, factor, save, options)
      : onDevice(input, factor, save, options)
  })(x, scale)
}

type Save = (tensors: Tensor[]) => void

interface Taped {
  readonly value: Tensor
  readonly gradFunc: (dy: Tensor, saved: Tensor[]) => Tensor[]
}

/** Normalizes row by row, in double precision. */
function onHost(x: Tensor, scale: Tensor, save: Save, options: NormalizeOptions): Taped {
  const width = scale.size
  const rows = x.size / width
  const means = new Float64Array(rows)
  const inverses = new Float64Array(rows)
  save([x, scale])
  const value = scopedTensor(x.shape, (out) => {
    const [input, factors] = [viewOf(x), viewOf(scale)]
    for (let row = 0; row < rows; row++) {
      const start = row * width
      let [mean, square] = [0, 0]
      if (options.centers) {
        for (let i = 0; i < width; i++) mean += input[start + i]!
        mean /= width
      }
      for (let i = 0; i < width; i++) square += (input[start + i]! - mean) ** 2
      const inverse = 1 / Math.sqrt(square / width + options.epsilon)
      means[row] = mean
      inverses[row] = inverse
      for (let i = 0; i < width; i++) {
        out[start + i] = (input[start + i]! - mean) * inverse * factors[i]!
      }
    }
  })
  return {
    value,
    gradFunc: (dy, saved) => hostGradients(dy, saved, { means, inverses }, options),
  }
}

function hostGradients(
  dy: Tensor,
  saved: readonly Tensor[],
  { means, inverses }: { means: Float64Array; inverses: Float64Array },
  { centers }: NormalizeOptions,
): [dx: Tensor, dScale: Tensor] {
  const [x, scale] = saved as [Tensor, Tensor]
  const width = scale.size
  const sums = new Float64Array(width)
  const dx = scopedTensor(x.shape, (out) => {
    const [input, factors, slopes] = [viewOf(x), viewOf(scale), viewOf(dy)]
    for (let row = 0; row < means.length; row++) {
      const start = row * width
      const [mean, inverse] = [means[row]!, inverses[row]!]
      let [along, aside] = [0, 0]
      for (let i = 0; i < width; i++) {
        const normal = (input[start + i]! - mean) * inverse
        const slope = slopes[start + i]! * factors[i]!
        sums[i]! += slopes[start + i]! * normal
        along += slope * normal
        aside += slope
      }
      along /= width
      aside = centers ? aside / width : 0
      for (let i = 0; i < width; i++) {
        const normal = (input[start + i]! - mean) * inverse
        out[start + i] = inverse * (slopes[start + i]! * factors[i]! - aside - normal * along)
      }
    }
  })
  const dScale = scopedTensor(scale.shape, (out) => {
    out.set(sums)
  })
  return [dx, dScale]
}

/** Normalizes without fetching values. */
function onDevice(x: Tensor, scale: Tensor, save: Save, options: NormalizeOptions): Taped {
  const centered = options.centers ? tf.sub(x, tf.mean(x, -1, true)) : x
  const variance = tf.mean(tf.square(centered), -1, true)
  const inverse = tf.rsqrt(tf.add(variance, options.epsilon))
  const normal = tf.mul(centered, inverse)
  save([normal, inverse, scale])
  return {
    value: tf.mul(normal, scale),
    gradFunc: (dy, saved) => deviceGradients(dy, saved, options),
  }
}

function deviceGradients(
  dy: Tensor,
  saved: readonly Tensor[],
  { centers }: NormalizeOptions,
): [dx: Tensor, dScale: Tensor] {
  const [normal, inverse, scale] = saved as [Tensor, Tensor, Tensor]
  const slope = tf.mul(dy, scale)
  const along = tf.mul(normal, tf.mean(tf.mul(slope, normal), -1, true))
  const rest = tf.sub(slope, along)
  const dx = tf.mul(inverse, centers ? tf.sub(rest, tf.mean(slope, -1, true)) : rest)
  const axes = dy.shape.slice(0, -1).map((_, axis) => axis)
  return [dx, tf.sum(tf.mul(dy, normal), axes)]
}
