import { readBuiltFile } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'

export { blasLibraries } from '@tsrun/core'
export { openBlas, type Blas } from '@tsrun/native'

/** Reads the compiled kernels. The kernels for `fast` need relaxed SIMD. */
export function kernelBytes(math: 'exact' | 'fast'): Uint8Array<ArrayBuffer> {
  const name = math === 'fast' ? 'kernels-fast.wasm' : 'kernels.wasm'
  return readBuiltFile(new URL(`dist/${name}`, packageFolder))
}
