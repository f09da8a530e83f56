import type { TensorInfo } from '@tensorflow/tfjs-core'
import { tf } from '../tensorflow.ts'
import type { Bridge, HostArray, HostDType } from './bridge.ts'
import { countCopy } from './copies.ts'

/** The part of the wasm backend that gives access to its heap. */
interface HeapBackend {
  typedArrayFromHeap(tensor: TensorInfo): HostArray
  makeOutput(shape: number[], dtype: HostDType): TensorInfo
}

const heap = (): HeapBackend => tf.engine().backend as unknown as HeapBackend

/** wasm: the heap of its module is an ArrayBuffer; one copy each way. */
export const heapBridge: Bridge = {
  view: (tensor) => heap().typedArrayFromHeap(tensor),
  writeTo(tensor, target) {
    target.set(heap().typedArrayFromHeap(tensor))
    countCopy('toHost', target.byteLength)
  },
  create(shape, dtype, fill) {
    const output = heap().makeOutput([...shape], dtype)
    fill(heap().typedArrayFromHeap(output))
    return tf.engine().makeTensorFromTensorInfo(output)
  },
}
