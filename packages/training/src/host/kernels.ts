import { readBuiltFile } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'

export { blasLibraries } from '@tsrun/core'
export { openBlas, type Blas } from '@tsrun/native'

/** Reads the compiled kernels. */
export function kernelBytes(): Uint8Array<ArrayBuffer> {
  return readBuiltFile(new URL('dist/kernels.wasm', packageFolder))
}
