import type * as Kernels from './kernels.ts'
import bytes from '../../dist/kernels.wasm'

export const kernelBytes: typeof Kernels.kernelBytes = () => bytes
