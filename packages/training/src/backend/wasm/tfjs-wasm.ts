import type { TensorInfo } from '@tensorflow/tfjs-core'
import type { HostDType } from '../../tfjs/host-arrays.ts'

/** The parts of the wasm backend of TensorFlow.js (4.22) that this package relies on. */
export interface WasmModule {
  readonly wasm: {
    /** Returns the address of a new block of memory as a signed integer; 0 if there is no room. */
    _malloc(bytes: number): number
    _free(address: number): void
    readonly HEAPU8: Uint8Array<ArrayBuffer>
    /** The exports of the wasm module. */
    readonly asm: {
      readonly memory: WebAssembly.Memory
      readonly malloc: (bytes: number) => number
      readonly free: (address: number) => void
    }
    /** Functions of `backend_wasm.js`: `move`, `disposeData`. */
    readonly tfjs: {
      registerTensor(id: number, size: number, memoryOffset: number): void
      disposeData(id: number): void
    }
  }
  readonly dataIdMap: { get(dataId: object): { readonly id: number; memoryOffset: number } }
  typedArrayFromHeap(tensor: TensorInfo): Float32Array<ArrayBuffer>
  makeOutput(shape: readonly number[], dtype: HostDType): TensorInfo
  getMemoryOffset(dataId: object): number
  refCount(dataId: object): number
  incRef(dataId: object): void
}
