import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { TensorBackend } from './backend.ts'
import { countCopy, newArray, type HostArray, type HostDType } from './host-arrays.ts'
import { tf } from './tfjs.ts'

/**
 * What holds for any backend of TensorFlow.js whose values can be read synchronously.
 *
 * Out of a tensor: one copy from the memory of the backend into a new array, one from there to the
 * target. Into a tensor: one copy into an array that the backend takes over, and one more where the
 * alignment of the array does not suit it or the tensor is on a GPU; that one is always counted.
 */
export const genericBackend: TensorBackend = {
  peek: readSync,
  writeTo(tensor, target) {
    const values = readSync(tensor)
    countCopy('toHost', target.byteLength)
    target.set(values)
    countCopy('toHost', target.byteLength)
  },
  create(shape, dtype, fill) {
    const tensor = createFromArray(shape, dtype, fill)
    countCopy('toTensor', tensor.size * tf.util.bytesPerElement(dtype))
    return tensor
  },
}

/** Makes a tensor that takes over the array which `fill` has written. */
export function createFromArray(
  shape: readonly number[],
  dtype: HostDType,
  fill: (values: HostArray) => void,
): Tensor {
  const values = newArray(shape, dtype)
  fill(values)
  return tf.tensor(values, [...shape], dtype)
}

export function readSync({ dataId }: TensorInfo): HostArray {
  return tf.engine().readSync(dataId) as HostArray
}
