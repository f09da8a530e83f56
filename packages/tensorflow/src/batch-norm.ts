import { type Tensor, type TensorBackend, tf } from '@tsrun/training/backends'
import type { Handle } from './binding-kernels.ts'
import { currentEager, type Eager } from './eager.ts'

type Backend = Required<TensorBackend>

/**
 * Batch norm in one TensorFlow operation in each direction. It sums in single precision, so x is centered
 * first: a mean that is large compared with the deviation would cost digits.
 */
export const batchNorm: Backend['batchNorm'] = (
  { x, weight, bias },
  { mean, variance, epsilon, momentum },
) => {
  const eager = currentEager()!
  const rows = asImages(x)
  const center = tf.mean(rows, [0, 1, 2])
  const centered = tf.sub(rows, center)
  const inputs = [centered, weight, bias, tf.sub(mean, center), variance]
  const outputs = eager.batchNorm(inputs, epsilon, true, momentum)
  const [y, nextMean, nextVariance, ...saved] = outputs.map(({ id, shape }) =>
    eager.takeScoped(id, shape),
  ) as [Tensor, Tensor, Tensor, ...Tensor[]]
  return {
    value: tf.reshape(y, x.shape),
    mean: tf.add(nextMean, center),
    variance: nextVariance,
    saved: [centered, weight, ...saved],
    gradients(dy, inputs) {
      const eager = currentEager()!
      const [dx, ...others] = eager
        .batchNormGradient([asImages(dy), ...inputs], epsilon, true)
        .map(({ id, shape }) => eager.takeScoped(id, shape))
      return [tf.reshape(dx!, dy.shape), ...others]
    },
  }
}

/**
 * The epsilon to pass with a variance of 1 - EPSILON, so that their sum is exactly 1. The reciprocal of its
 * root may still differ from 1, because some CPUs only estimate it.
 */
const EPSILON = 2 ** -10

/** The passes of a synchronized batch norm, which also use batch norm operations. Sums are in float32. */
export const columns: Backend['columns'] = {
  sums(y, x, center) {
    const eager = currentEager()!
    const isSame = y === x && center.some((value) => value !== 0)
    const { scale, variance } = unitOf(center)
    const zeros = new Float64Array(center.length)
    // Sums of centered values lose fewer digits.
    const factor = isSame ? columns.combine(x, x, { a: zeros, b: scale, c: zeros, center }) : y
    const images = [asImages(factor), asImages(x)]
    const [dx, ofProducts, ofFactor] = withVectors(eager, [scale, center, variance], (given) =>
      eager.batchNormGradient([...images, ...given, given[0]!], EPSILON, false),
    )
    eager.free(dx.id)
    const [sums, products] = [ofFactor, ofProducts].map(({ id, shape }) =>
      Float64Array.from(eager.takeScoped(id, shape).dataSync()),
    ) as [Float64Array, Float64Array]
    for (const [c, value] of center.entries()) {
      // Correct the sums: the operation subtracts centers that are rounded to float32.
      products[c]! += (Math.fround(value) - value) * sums[c]!
      if (!isSame) continue
      products[c]! += value * sums[c]!
      sums[c]! += (value * x.size) / center.length
    }
    return Float64Array.of(...sums, ...products)
  },

  combine(y, x, { a, b, c, center }) {
    const eager = currentEager()!
    const { variance } = unitOf(center)
    const zeros = new Float64Array(center.length)
    const offset = c.map((value, i) => value + b[i]! * (Math.fround(center[i]!) - center[i]!))
    const linear = (images: Tensor, ...factors: Float64Array[]) =>
      withVectors(eager, [...factors, variance], (given) => {
        const inputs = [asImages(images), ...given]
        const [value, ...rest] = eager.batchNorm(inputs, EPSILON, false)
        for (const { id } of rest) eager.free(id)
        return tf.reshape(eager.takeScoped(value!.id, value!.shape), x.shape)
      })
    const ofX = linear(x, b, offset, center)
    return a.every((factor) => factor === 0) ? ofX : tf.add(ofX, linear(y, a, zeros, zeros))
  },
}

/** The scale and the variance that leave centered values as they are. */
function unitOf({ length }: Float64Array) {
  return {
    scale: new Float64Array(length).fill(1),
    variance: new Float64Array(length).fill(1 - EPSILON),
  }
}

function withVectors<T>(
  eager: Eager,
  vectors: readonly Float64Array[],
  compute: (handles: readonly Handle[]) => T,
): T {
  const handles = vectors.map((values) => eager.copyIn(Float32Array.from(values), [values.length]))
  try {
    return compute(handles)
  } finally {
    for (const handle of handles) eager.free(handle)
  }
}

/** Returns [..., channels] as images [batch, height, width, channels]. */
function asImages(x: Tensor): Tensor {
  const channels = x.shape.at(-1)!
  return x.rank === 4 ? x : tf.reshape(x, [1, x.size / channels, 1, channels])
}
