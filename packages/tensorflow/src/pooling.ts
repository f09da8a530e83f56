import {
  type KernelCall,
  poolingPlaces,
  replaceKernel,
  reshaped,
  type Tensor,
  tf,
  type WindowAttributes,
} from '@tsrun/training/backends'
import { currentEager } from './eager.ts'
import { repeat } from './repeated.ts'

/** The largest number of values in a window. TensorFlow handles larger windows. */
const LARGEST_WINDOW = 16

/**
 * Computes the gradient of max pooling on the CPU by operations on whole tensors, if the windows divide the
 * images without overlap. TensorFlow's kernel visits each value with a branch, which takes four to six
 * times as long. Of equal values, the first in a window gets the gradient, as in TensorFlow's kernel. The
 * first value also gets it if it is NaN, or if no value equals the output.
 */
export function installPoolGradient(): void {
  type Call = KernelCall<'dy' | 'input' | 'output', WindowAttributes>
  replaceKernel<Call>('MaxPoolGrad', 'tensorflow', (original) => (call) => {
    const { input, output, dy } = call.inputs as Record<'input' | 'output' | 'dy', Tensor>
    const places = poolingPlaces(input.shape, call.attrs)
    const size = [places.filterHeight, places.filterWidth] as const
    const isPossible =
      places.strideHeight === size[0] &&
      places.strideWidth === size[1] &&
      places.inHeight === size[0] * places.outHeight &&
      places.inWidth === size[1] * places.outWidth &&
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

/** Assigns each gradient to one position of its window. */
function distribute(
  dy: Tensor,
  x: Tensor,
  y: Tensor,
  [height, width]: readonly [number, number],
): Tensor {
  const [batch, rows, columns, channels] = y.shape as [number, number, number, number]
  const windows = [batch * rows * columns, channels]
  const lines = [batch * rows, height, columns * width * channels]
  const largest = reshaped(y, windows)
  const slopes = reshaped(dy, windows)
  const zeros = tf.zerosLike(slopes)
  const [first, ...others] = tf
    .split(reshaped(x, lines), height, 1)
    .flatMap((line) => tf.split(reshaped(line, [windows[0]!, width * channels]), width, 1))
  const isLess = tf.less(first!, largest)
  let rest = tf.where(isLess, slopes, zeros)
  const shares = others.map((values) => {
    const isLargest = tf.equal(values, largest)
    const share = tf.where(isLargest, rest, zeros)
    rest = tf.where(isLargest, zeros, rest)
    return share
  })
  const all = [tf.where(isLess, rest, slopes), ...shares]
  const gradients = Array.from({ length: height }, (_, i) =>
    reshaped(tf.concat(all.slice(i * width, (i + 1) * width), 1), [lines[0]!, 1, lines[2]!]),
  )
  return reshaped(tf.concat(gradients, 1), [...x.shape])
}
