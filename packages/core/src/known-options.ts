import { tsrError } from './errors/tsr-error.ts'
import { shown } from './shown.ts'

/**
 * @param name - of the argument
 * @throws ERR_TSR_ARGUMENT unless `options` is an object, or naming its first option that is none of
 *   `known`
 */
export function refuseUnknown(options: object, known: readonly string[], name = 'options'): void {
  if (!isObject(options)) {
    const expected = `an object with ${known.join(', ')}`
    throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(options), expected })
  }
  const unknown = Object.keys(options).find((option) => !known.includes(option))
  if (unknown === undefined) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name,
    value: `one with ${unknown}`,
    expected: `no others than ${known.join(', ')}`,
  })
}

/** Not so where the caller has no types, or has given its arguments in another order. */
function isObject(options: unknown): boolean {
  return typeof options === 'object' && options !== null && !Array.isArray(options)
}
