import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { tf } from './tensorflow.ts'

/** The part of the wasm backend that gives access to its heap. */
interface HeapBackend {
  typedArrayFromHeap(tensor: TensorInfo): Float32Array
  makeOutput(shape: number[], dtype: 'float32'): TensorInfo
}

/**
 * The values of a float32 tensor, without a copy where the backend keeps them in reach (wasm, cpu).
 *
 * Read it at once: on wasm the next allocation may detach it. Never write to it.
 */
export function viewOf(tensor: TensorInfo): Float32Array {
  const heap = heapBackend()
  return heap === undefined
    ? (tf.engine().readSync(tensor.dataId) as Float32Array)
    : heap.typedArrayFromHeap(tensor)
}

/**
 * A new float32 tensor whose zeroed or arbitrary memory `fill` writes in full, without a copy on
 * wasm and cpu. Views of other tensors have to be taken inside `fill`, after the allocation. It
 * outlives any tf.tidy; the caller disposes it.
 */
export function createTensor(
  shape: readonly number[],
  fill: (values: Float32Array) => void,
): Tensor {
  const heap = heapBackend()
  if (heap === undefined) {
    const values = new Float32Array(shape.reduce((product, size) => product * size, 1))
    fill(values)
    return tf.keep(tf.tensor(values, [...shape]))
  }
  const output = heap.makeOutput([...shape], 'float32')
  fill(heap.typedArrayFromHeap(output))
  return tf.keep(tf.engine().makeTensorFromTensorInfo(output))
}

function heapBackend(): HeapBackend | undefined {
  const { backend } = tf.engine()
  return 'typedArrayFromHeap' in backend ? (backend as unknown as HeapBackend) : undefined
}
