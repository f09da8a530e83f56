import type * as Kernels from './kernels.ts'
import exact from '../../dist/kernels.wasm'
import fast from '../../dist/kernels-fast.wasm'

export const kernelBytes: typeof Kernels.kernelBytes = (math) => (math === 'fast' ? fast : exact)

export const openBlas: typeof Kernels.openBlas = () => 'a page cannot load libraries'
export const blasLibraries: typeof Kernels.blasLibraries = () => []
