import { currentHeap, type WasmHeap } from './wasm/heap.ts'

/** float32 values beside the tensors, for example the state of an optimizer. */
export interface HostVector {
  /** Take them anew at each use: on wasm, allocations detach earlier views. */
  readonly values: Float32Array
}

interface Block {
  readonly heap: WasmHeap
  readonly address: number
}

const blocks = new FinalizationRegistry<Block>(({ heap, address }) => {
  heap.free(address)
})

/** Zeros; in the memory of the wasm backend where that is current, so that its kernels reach them. */
export function hostVector(length: number): HostVector {
  const heap = currentHeap()
  if (heap === undefined) return { values: new Float32Array(length) }
  const address = heap.allocate(4 * length)
  heap.floats(address, length).fill(0)
  const vector = {
    get values() {
      return heap.floats(address, length)
    },
  }
  blocks.register(vector, { heap, address })
  return vector
}
