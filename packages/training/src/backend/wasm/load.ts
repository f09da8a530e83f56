import type { BackendFacts, BackendOptions } from '../../tfjs/backend.ts'
import { correctKernels } from '../../tfjs/correct-kernels.ts'
import { registerWasm, withoutErrorListeners } from '#tfjs'
import { tf } from '../../tfjs/tfjs.ts'
import type { Blas } from '#kernels'
import { instantiateKernels } from '../../kernels/kernels.ts'
import { findBlas } from './blas.ts'
import { heapOf, type WasmModule } from './heap.ts'
import { installMatMul } from './matmul.ts'
import { guardMemory } from './memory-guard.ts'
import { installKernels } from './replaced-kernels.ts'
import { installWindows } from './windows.ts'

/** Kernels are replaced once, because the kernel registry is process-wide. */
let isInstalled = false

/** Loads the wasm backend: one thread, at most 4 GiB of tensors, and a BLAS if there is one. */
export async function loadWasm({ math }: BackendOptions = {}): Promise<BackendFacts> {
  await withoutErrorListeners(async () => {
    registerWasm()
    if (!(await tf.setBackend('wasm'))) throw new Error('it could not be initialized')
  })
  const backend = tf.engine().backend as unknown as WasmModule
  guardMemory(backend)
  if (!isInstalled) {
    installMatMul()
    installKernels()
    installWindows()
    correctKernels('wasm')
  }
  isInstalled = true
  const heap = heapOf(backend)
  heap.makeExact()
  if (math !== 'exact') heap.blas = findBlas(heap)
  if (math === 'fast' || heap.blas !== undefined) {
    heap.kernels = instantiateKernels(backend.wasm.asm.memory, 'fast')
  }
  return { device: 'CPU', threads: 1, blas: heap.blas && nameOf(heap.blas) }
}

/** Returns the name of the library, and of its kernels for this processor if known. */
function nameOf({ library, kernels }: Blas): string {
  return kernels === undefined ? library : `${library} (${kernels})`
}
