import { readBuiltFile } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'

export function kernelBytes(): Uint8Array<ArrayBuffer> {
  return readBuiltFile(new URL('dist/kernels.wasm', packageFolder))
}
