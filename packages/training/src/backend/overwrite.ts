import type { Tensor } from '@tensorflow/tfjs-core'
import { createTensor } from './host-memory.ts'
import { currentHeap } from './wasm/heap.ts'

/**
 * Gives a float32 tensor new values, in its own memory where that is safe: a receive in place.
 *
 * Safe it is on wasm, unless another tensor shares the memory (a clone, a reshaped one, what a
 * recording has saved) or XNNPACK has a packed copy of it, as of every filter of a convolution: later
 * results would still be those of the old values. Everywhere else `tensor` is disposed and a new one
 * returned. The values of parameters are better replaced always: recordings notice that.
 *
 * @param tensor - the caller's; use what is returned from now on
 * @param fill - writes all values; see {@link createTensor}
 *
 * @example
 * received = overwrite(received, (values) => values.set(buffer))
 */
export function overwrite(tensor: Tensor, fill: (values: Float32Array) => void): Tensor {
  const heap = currentHeap()
  if (tensor.dtype === 'float32' && heap?.isWritable(tensor) === true) {
    fill(heap.floats(heap.addressOf(tensor), tensor.size))
    return tensor
  }
  const next = createTensor(tensor.shape, fill)
  tensor.dispose()
  return next
}
