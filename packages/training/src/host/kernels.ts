import { readBlasManifest, readBuiltFile } from '@tsrun/core'
import { systemLibraries } from '@tsrun/native'
import { packageFolder } from '../package-folder.ts'

export { openBlas, type Blas } from '@tsrun/native'

/** Reads the compiled kernels. Those for `fast` need relaxed SIMD. */
export function kernelBytes(math: 'exact' | 'fast'): Uint8Array<ArrayBuffer> {
  const name = math === 'fast' ? 'kernels-fast.wasm' : 'kernels.wasm'
  return readBuiltFile(new URL(`dist/${name}`, packageFolder))
}

/**
 * The names and paths of BLAS libraries, the preferred one first.
 *
 * @throws ERR_TSR_SETUP_MANIFEST if it is unknown what `tsrun setup blas` has installed
 */
export function blasLibraries(): readonly string[] {
  const manifest = readBlasManifest()
  return manifest === undefined ? systemLibraries : [manifest.library, ...systemLibraries]
}
