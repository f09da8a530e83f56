import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { TensorBackend } from './backend.ts'
import { countCopy, newArray, type HostArray, type HostDType } from './host-arrays.ts'
import { tf } from './tfjs.ts'

/**
 * The implementation for any backend whose values can be read synchronously. Reading a tensor takes two
 * copies: from the memory of the backend into a new array, and from there to the target. Creating a
 * tensor takes one copy, into an array that the backend takes over. A misaligned array or a tensor on a
 * GPU takes one more copy, which is always counted.
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

/** Creates a tensor that takes over the array that `fill` writes. */
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
