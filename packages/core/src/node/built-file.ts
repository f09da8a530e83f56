import { readFileSync } from 'node:fs'
import { tsrError } from '../errors/tsr-error.ts'

/**
 * Reads a file that the build of a package creates, such as compiled kernels.
 *
 * @throws ERR_TSR_BUILT_FILE when it is missing
 */
export function readBuiltFile(file: URL): Uint8Array<ArrayBuffer> {
  try {
    return readFileSync(file)
  } catch (cause) {
    throw tsrError('ERR_TSR_BUILT_FILE', { path: file.pathname }, { cause })
  }
}
