import type { BackendFacts } from './backend.ts'
import { withoutErrorListeners } from './process-listeners.ts'
import { registerWasm, tf } from './tensorflow.ts'
import { installTransposedMatMul } from './wasm-matmul.ts'

let installed = false

/** XNNPACK kernels in WebAssembly with SIMD, one thread; at most 4 GiB of tensors a process. */
export async function loadWasm(): Promise<BackendFacts> {
  await withoutErrorListeners(async () => {
    registerWasm()
    if (!(await tf.setBackend('wasm'))) throw new Error('it could not be initialised')
  })
  if (!installed) installTransposedMatMul()
  installed = true
  return { device: 'CPU', threads: 1 }
}
