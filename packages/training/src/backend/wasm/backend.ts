import type { TensorBackend } from '../../tfjs/backend.ts'
import { countCopy } from '../../tfjs/host-arrays.ts'
import { tf } from '../../tfjs/tfjs.ts'
import { attention, cachedAttention } from './attention.ts'
import { heapOf, type WasmModule } from './heap.ts'
import { wasmLinear } from './linear.ts'
import { recordOperations } from './operations.ts'
import { passes } from './passes.ts'

const current = (): WasmModule => tf.engine().backend as unknown as WasmModule

/** The heap of the wasm module is an ArrayBuffer, so reading or writing values takes one copy. */
export const wasmBackend: TensorBackend = {
  view: (tensor) => current().typedArrayFromHeap(tensor),
  writeTo(tensor, target) {
    target.set(current().typedArrayFromHeap(tensor))
    countCopy('toHost', target.byteLength)
  },
  create(shape, dtype, fill) {
    const output = current().makeOutput([...shape], dtype)
    fill(current().typedArrayFromHeap(output))
    return tf.engine().makeTensorFromTensorInfo(output)
  },
  storageOf({ dataId, size }) {
    const { wasm, dataIdMap } = current()
    const data = dataIdMap.get(dataId)
    return {
      free() {
        wasm._free(data.memoryOffset)
        // `disposeData` also frees XNNPACK's packed copies of the tensor.
        wasm.tfjs.disposeData(data.id)
      },
      fill(values) {
        data.memoryOffset = wasm._malloc(4 * size) >>> 0
        wasm.tfjs.registerTensor(data.id, size, data.memoryOffset)
        new Float32Array(wasm.HEAPU8.buffer, data.memoryOffset, size).set(values)
      },
      abandon() {
        // free(0) does nothing.
        data.memoryOffset = 0
      },
    }
  },
  attention,
  cachedAttention,
  makeExact() {
    heapOf(current()).makeExact()
  },
  linear: wasmLinear,
  recordOperations,
  ...passes,
}
