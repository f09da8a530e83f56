import { codeOf, tsrError } from './errors/tsr-error.ts'

/**
 * Imports an optional package.
 *
 * @param what - the feature that needs it, for the error
 * @throws ERR_TSR_PACKAGE_MISSING when it is not installed
 */
export async function importOptional<T>(
  what: string,
  packageName: string,
  load: () => Promise<T>,
): Promise<T> {
  try {
    return await load()
  } catch (cause) {
    if (codeOf(cause) !== 'ERR_MODULE_NOT_FOUND') throw cause
    throw tsrError('ERR_TSR_PACKAGE_MISSING', { what, package: packageName }, { cause })
  }
}
