import type { BackendFacts } from './backend.ts'
import { withoutErrorListeners } from './process-listeners.ts'
import { registerWasm, tf } from './tfjs.ts'
import type { WasmBackend } from './wasm/backend.ts'
import { installSharedIdentity } from './wasm/identity.ts'
import { installMatMul } from './wasm/matmul.ts'
import { guardMemory } from './wasm/memory-guard.ts'
import { watchPacking } from './wasm/packed.ts'
import { installSegmentSum } from './wasm/segment-sum.ts'
import { installSum } from './wasm/sum.ts'

let installed = false

/** Kernels in WebAssembly with SIMD, one thread; at most 4 GiB of tensors a process. */
export async function loadWasm(): Promise<BackendFacts> {
  await withoutErrorListeners(async () => {
    registerWasm()
    if (!(await tf.setBackend('wasm'))) throw new Error('it could not be initialised')
  })
  guardMemory(tf.engine().backend as unknown as WasmBackend)
  if (!installed) {
    installMatMul()
    installSegmentSum()
    installSum()
    installSharedIdentity()
    watchPacking()
  }
  installed = true
  return { device: 'CPU', threads: 1 }
}
