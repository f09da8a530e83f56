import { readBuiltFile } from '@tsrun/core'
import { systemLibraries } from '@tsrun/native'
import { packageFolder } from '../package-folder.ts'

export { openBlas, type Blas } from '@tsrun/native'

/** Reads the compiled kernels. */
export function kernelBytes(): Uint8Array<ArrayBuffer> {
  return readBuiltFile(new URL('dist/kernels.wasm', packageFolder))
}

/** The names and paths of BLAS libraries, the preferred one first. */
export function blasLibraries(): readonly string[] {
  return systemLibraries
}
