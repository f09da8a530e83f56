import type { TensorInfo } from '@tensorflow/tfjs-core'
import type { KernelExports } from '../../kernels/kernels.ts'
import type { TensorBackend } from '../../tfjs/backend.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { currentHeap } from './heap.ts'

/** Computations that read and write each value as few times as possible. */
export const passes = {
  normalize(epsilon, x, scale, shift) {
    const heap = currentHeap()!
    const width = scale.size
    const rows = x.size / width
    const [value, statistics] = [heap.scoped(x.shape), heap.scoped([rows, 3])]
    run('normalize', [value, statistics, x, scale, shift], rows, width, epsilon)
    return {
      value,
      saved: [x, scale, statistics],
      gradients(dy, saved) {
        const [dx, dScale, dShift] = [dy, scale, shift].map(
          (like) => like && heap.scoped(like.shape),
        )
        const tensors = [dx, dScale, dShift, dy, ...saved]
        run('normalize_gradients', tensors, heap.temporary(16 * width), rows, width, 0)
        return [dx!, dScale!, ...(dShift === undefined ? [] : [dShift])]
      },
    }
  },

  gate(input, linear, cubic) {
    const heap = currentHeap()!
    const x = floats(input)
    const [value, slope] = [heap.scoped(x.shape), heap.scoped(x.shape)]
    run('gate', [value, slope, x], 1, x.size, 0, linear, cubic)
    return { value, saved: [slope], gradients: (dy, [slope]) => [tf.mul(dy, slope!)] }
  },

  crossEntropy(logits, labels, weight, { ignoreIndex = -1, labelSmoothing }) {
    const heap = currentHeap()!
    const rows = labels.size
    const classes = logits.size / rows
    const gradient = heap.scoped(logits.shape)
    const losses = heap.temporary(16 * rows + 8 * (classes + 1))
    const sizes = [rows, classes, ignoreIndex]
    const tensors = [gradient, floats(logits), labels]
    run('cross_entropy', tensors, losses, ...sizes, labelSmoothing, weight)
    const parts = new Float64Array(heap.backend.wasm.HEAPU8.buffer, losses, 2 * rows)
    let loss = 0
    for (let i = 0; i < parts.length; i += 2) loss += Math.log(parts[i]!) - parts[i + 1]!
    return { value: tf.scalar(loss * weight), gradient: tf.keep(gradient) }
  },

  reluGradient(dy, output) {
    const dx = currentHeap()!.scoped(dy.shape)
    run('mask', [dx, dy, output], dy.size)
    return dx
  },

  rectifiesPooling: true,

  columns: {
    sums(y, x, center) {
      const heap = currentHeap()!
      const columns = center.length
      const sums = heap.temporary(24 * columns)
      const numbers = new Float64Array(heap.backend.wasm.HEAPU8.buffer, sums, 3 * columns)
      numbers.set(center, 2 * columns)
      run('column_sums', [y, x], sums, x.size / columns, columns)
      return numbers.slice(0, 2 * columns)
    },

    combine(y, x, { a, b, c, center }) {
      const heap = currentHeap()!
      const columns = center.length
      const value = heap.scoped(x.shape)
      const factors = heap.temporary(20 * columns)
      const rest = center.map((number) => number - Math.fround(number))
      const numbers = heap.floats(factors, 5 * columns)
      for (const [i, values] of [a, b, c, center, rest].entries()) numbers.set(values, i * columns)
      run('combine_columns', [value, y, x], factors, x.size / columns, columns)
      return value
    },
  },

  sumOfSquares: (x) => run('sum_of_squares', [x], x.size),

  scale(x, factor) {
    const heap = currentHeap()!
    const scaled = heap.isWritable(x) ? x : heap.tensor(x.shape)
    run('scale', [scaled, x], x.size, factor)
    if (scaled !== x) x.dispose()
    return scaled
  },
} satisfies Partial<TensorBackend>

function floats(x: Tensor): Tensor {
  return x.dtype === 'float32' ? x : tf.cast(x, 'float32')
}

/** Calls a kernel with the addresses of tensors (0 for an absent one), followed by other values. */
export function run(
  name: keyof KernelExports,
  tensors: readonly (TensorInfo | undefined)[],
  ...values: readonly (number | boolean)[]
): number {
  const heap = currentHeap()!
  const addresses = tensors.map((tensor) => (tensor === undefined ? 0 : heap.addressOf(tensor)))
  return heap.kernels[name](...addresses, ...values)
}
