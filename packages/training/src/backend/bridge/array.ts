import type { TensorInfo } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs.ts'
import type { Bridge, HostArray } from './bridge.ts'
import { countCopy } from './copies.ts'
import { newArray } from './dtypes.ts'

/** cpu: a tensor is a typed array; one copy each way. */
export const arrayBridge: Bridge = {
  view: readSync,
  writeTo(tensor, target) {
    target.set(readSync(tensor))
    countCopy('toHost', target.byteLength)
  },
  create(shape, dtype, fill) {
    const values = newArray(shape, dtype)
    fill(values)
    return tf.tensor(values, [...shape], dtype)
  },
}

/**
 * One copy out of the backend's memory into a new array, one from there to its place. Into a tensor:
 * one into an array that the backend takes over, and one more where it does not like the array's
 * alignment or the tensor lives on a GPU; that one is counted always.
 */
export const fetchedBridge: Bridge = {
  peek: readSync,
  writeTo(tensor, target) {
    const values = readSync(tensor)
    countCopy('toHost', target.byteLength)
    target.set(values)
    countCopy('toHost', target.byteLength)
  },
  create(shape, dtype, fill) {
    const tensor = arrayBridge.create(shape, dtype, fill)
    countCopy('toTensor', tensor.size * tf.util.bytesPerElement(dtype))
    return tensor
  },
}

function readSync({ dataId }: TensorInfo): HostArray {
  return tf.engine().readSync(dataId) as HostArray
}
