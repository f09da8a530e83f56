import { tsrError } from '@tsrun/core'
import { tf } from './tensorflow.ts'
import type { WasmBackend } from './wasm-backend.ts'

const guarded = new WeakSet()

/**
 * Turns a full memory into an error.
 *
 * Without it the backend would write to address 0 on, over its own data, and die later with "memory
 * access out of bounds": it never looks at what malloc returns (tfjs-backend-wasm 4.22,
 * `backend_wasm.ts`, `move`). All tensors, and blocks for our kernels, are allocated here.
 */
export function guardMemory({ wasm }: WasmBackend): void {
  if (guarded.has(wasm)) return
  guarded.add(wasm)
  // The first call of Emscripten's malloc replaces itself.
  wasm._free(wasm._malloc(1))
  wasm._malloc = (bytes) => {
    const address = wasm.asm.malloc(bytes)
    if (address === 0 && bytes > 0) throw memoryError(bytes, wasm.HEAPU8.length)
    return address
  }
}

function memoryError(bytes: number, heap: number): Error {
  const { numBytes, numTensors } = tf.memory()
  return tsrError('ERR_TSR_TENSOR_MEMORY', {
    asked: mebibytes(bytes),
    used: mebibytes(numBytes),
    tensors: numTensors,
    heap: mebibytes(heap),
  })
}

function mebibytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toLocaleString('en', { maximumFractionDigits: 1, useGrouping: false })} MiB`
}
