import {
  type KernelCall,
  replaceKernel,
  runKernel,
  type Tensor,
  tf,
} from '@tsrun/training/backends'
import { currentEager } from './eager.ts'
import { repeat } from './repeated.ts'

/** Windows with more values are left to TensorFlow. */
const LARGEST_WINDOW = 16

interface PoolAttributes {
  readonly filterSize: number | [number, number]
  readonly strides: number | [number, number]
  readonly pad: unknown
}

/**
 * Computes the gradient of max pooling on the CPU by operations on whole tensors, if the windows divide the
 * images without overlap. TensorFlow's kernel visits each value with a branch, which takes four to six
 * times as long. Of equal values, the first in a window gets the gradient, as in that kernel.
 */
export function installPoolGradient(): void {
  type Call = KernelCall<'dy' | 'input' | 'output', PoolAttributes>
  replaceKernel<Call>('MaxPoolGrad', 'tensorflow', (original) => (call) => {
    const { input, output, dy } = call.inputs as Record<'input' | 'output' | 'dy', Tensor>
    const [size, stride] = [call.attrs.filterSize, call.attrs.strides].map(pairOf) as [Pair, Pair]
    const divides = [0, 1].every(
      (i) => stride[i] === size[i] && input.shape[1 + i] === size[i]! * output.shape[1 + i]!,
    )
    const isPossible =
      divides &&
      call.attrs.pad === 'valid' &&
      input.dtype === 'float32' &&
      size[0] * size[1] <= LARGEST_WINDOW &&
      currentEager()!.isOnHost
    if (!isPossible) return original(call)
    return tf.tidy(() => {
      const run = () => [tf.keep(distribute(dy, input, output, size))]
      const [gradient] = repeat('max pool gradient', [dy, input, output], run, size) ?? run()
      gradient!.kept = false
      return gradient!
    })
  })
}

type Pair = readonly [number, number]

function pairOf(size: number | Pair): Pair {
  return typeof size === 'number' ? [size, size] : size
}

/** Gives each gradient to the first of the largest values of its window. */
function distribute(dy: Tensor, x: Tensor, y: Tensor, [height, width]: Pair): Tensor {
  const [batch, rows, columns, channels] = y.shape as [number, number, number, number]
  const windows = [batch * rows * columns, channels]
  const lines = [batch * rows, height, columns * width * channels]
  const largest = reshaped(y, windows)
  let rest = reshaped(dy, windows)
  const zeros = tf.zerosLike(rest)
  const gradients = tf.split(reshaped(x, lines), height, 1).map((line, i) => {
    const places = tf.split(reshaped(line, [windows[0]!, width * channels]), width, 1)
    const shares = places.map((values, j) => {
      if (i === height - 1 && j === width - 1) return rest
      const isLargest = tf.equal(values, largest)
      const share = tf.where(isLargest, rest, zeros)
      rest = tf.where(isLargest, zeros, rest)
      return share
    })
    return reshaped(tf.concat(shares, 1), [lines[0]!, 1, lines[2]!])
  })
  return reshaped(tf.concat(gradients, 1), [...x.shape])
}

function reshaped(x: Tensor, shape: number[]): Tensor {
  return runKernel('Reshape', { x }, { shape })
}
