import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from './tfjs.ts'
import type { WasmBackend } from './wasm/backend.ts'

/**
 * The memory of a tensor apart from the tensor: it can be free for a while, and nobody notices who has
 * saved the tensor, a clone or a reshaped one for a backward pass. In between nobody may read it.
 */
export interface Storage {
  free(): void
  /** Takes memory again, after `free`, with a copy of these values. */
  fill(values: Float32Array): void
  /** After `free`: the tensor can be disposed. */
  abandon(): void
}

/** Where the current backend lets a float32 tensor have other memory; undefined where not. */
export function storageOf(tensor: Tensor): Storage | undefined {
  const { backend, backendName } = tf.engine()
  return storages[backendName]?.(backend, tensor)
}

type StorageOf = (backend: object, tensor: Tensor) => Storage

const storages: Readonly<Record<string, StorageOf>> = { wasm, cpu, tensorflow }

/** tfjs-backend-wasm 4.22, `backend_wasm.js`: `move`, `disposeData`. */
interface WasmTensors extends WasmBackend {
  readonly dataIdMap: { get(dataId: object): { readonly id: number; memoryOffset: number } }
  readonly wasm: WasmBackend['wasm'] & {
    readonly tfjs: {
      registerTensor(id: number, size: number, memoryOffset: number): void
      disposeData(id: number): void
    }
  }
}

function wasm(backend: object, { dataId, size }: Tensor): Storage {
  const { wasm: module, dataIdMap } = backend as WasmTensors
  const data = dataIdMap.get(dataId)
  return {
    free() {
      module._free(data.memoryOffset)
      // XNNPACK's packed copies too
      module.tfjs.disposeData(data.id)
    },
    fill(values) {
      data.memoryOffset = module._malloc(4 * size) >>> 0
      module.tfjs.registerTensor(data.id, size, data.memoryOffset)
      new Float32Array(module.HEAPU8.buffer, data.memoryOffset, size).set(values)
    },
    abandon() {
      // free(0) does nothing
      data.memoryOffset = 0
    },
  }
}

/** tfjs-backend-cpu 4.22, `backend_cpu.js`: `write`, `readSync`. */
interface CpuTensors {
  readonly data: { get(dataId: object): { values: Float32Array } }
}

const NOTHING = new Float32Array(0)

function cpu(backend: object, { dataId }: Tensor): Storage {
  const data = (backend as CpuTensors).data.get(dataId)
  return {
    free() {
      data.values = NOTHING
    },
    fill(values) {
      data.values = new Float32Array(values)
    },
    abandon: () => undefined,
  }
}

/** tfjs-node 4.22, `nodejs_kernel_backend.js`: `move`, `disposeData`, `getInputTensorIds`. */
interface NodeTensors {
  readonly binding: { deleteTensor(id: number): void }
  readonly tensorMap: { get(dataId: object): { values: Float32Array | null; id: number } }
}

function tensorflow(backend: object, { dataId }: Tensor): Storage {
  const { binding, tensorMap } = backend as NodeTensors
  const data = tensorMap.get(dataId)
  return {
    free() {
      if (data.id >= 0) binding.deleteTensor(data.id)
      data.id = -1
      data.values = null
    },
    fill(values) {
      // TensorFlow takes the array over
      data.values = new Float32Array(values)
    },
    abandon: () => undefined,
  }
}
