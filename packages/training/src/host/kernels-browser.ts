import type * as Kernels from './kernels.ts'
import kernels from '../../dist/kernels.wasm'

export const kernelBytes: typeof Kernels.kernelBytes = () => kernels

export const openBlas: typeof Kernels.openBlas = () => 'a page cannot load libraries'
export const blasLibraries: typeof Kernels.blasLibraries = () => []
