import type { TensorInfo } from '@tensorflow/tfjs-core'
import type { HostDType } from '../bridge/bridge.ts'

/** The parts of TensorFlow.js' wasm backend (4.22) that this project relies on. */
export interface WasmBackend {
  readonly wasm: {
    /** Bytes; the address of a new block of memory, 0 when there is none. Signed. */
    _malloc(bytes: number): number
    _free(address: number): void
    readonly HEAPU8: Uint8Array<ArrayBuffer>
    /** What the module exports. */
    readonly asm: {
      readonly memory: WebAssembly.Memory
      readonly malloc: (bytes: number) => number
      readonly free: (address: number) => void
    }
  }
  typedArrayFromHeap(tensor: TensorInfo): Float32Array<ArrayBuffer>
  makeOutput(shape: readonly number[], dtype: HostDType): TensorInfo
  getMemoryOffset(dataId: object): number
  refCount(dataId: object): number
  incRef(dataId: object): void
  disposeData(dataId: object): void
}
