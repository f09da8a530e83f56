import { readBuiltFile } from '@tsrun/core'
import { systemLibraries } from '@tsrun/native'
import { packageFolder } from '../package-folder.ts'

export { openBlas, type Blas } from '@tsrun/native'

/** Reads the compiled kernels. Those for `fast` need relaxed SIMD. */
export function kernelBytes(math: 'exact' | 'fast'): Uint8Array<ArrayBuffer> {
  const name = math === 'fast' ? 'kernels-fast.wasm' : 'kernels.wasm'
  return readBuiltFile(new URL(`dist/${name}`, packageFolder))
}

/** The names and paths of BLAS libraries, the preferred one first. */
export function blasLibraries(): readonly string[] {
  return systemLibraries
}
