import { tf } from '../tfjs.ts'
import type { WasmBackend } from '../wasm/backend.ts'
import type { Bridge } from './bridge.ts'
import { countCopy } from './copies.ts'

const heap = (): WasmBackend => tf.engine().backend as unknown as WasmBackend

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
