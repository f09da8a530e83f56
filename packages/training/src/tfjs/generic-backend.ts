import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { TensorBackend } from './backend.ts'
import { countCopy, newArray, type HostArray, type HostDType } from './host-arrays.ts'
import { tf } from './tfjs.ts'

/**
 * The common part of all backends of TensorFlow.js whose values can be read synchronously.
 *
 * Reading a tensor takes one copy from the memory of the backend into a new array, and one from there to
 * the target. Creating a tensor takes one copy into an array that the backend takes over. One more is
 * needed if the array is misaligned or the tensor is on a GPU, and is always counted.
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

/** Makes a tensor that takes over the array that `fill` writes. */
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
