import { tsrError } from './errors/tsr-error.ts'

/**
 * Returns `import.meta.url` of a module.
 *
 * @throws ERR_TSR_BUILT_FILE in a CommonJS bundle, which has none
 */
export function moduleAddress(url: string | undefined): string {
  if (url !== undefined) return url
  throw tsrError('ERR_TSR_BUILT_FILE', { path: 'its own folder, in a bundle of CommonJS' })
}
