import { tsrError } from './errors/tsr-error.ts'

/**
 * @throws ERR_TSR_ARGUMENT unless `options` is an object, or naming its first option that is none of
 *   `known`
 */
export function refuseUnknown(options: object, known: readonly string[]): void {
  if (!isObject(options)) {
    const expected = `an object with ${known.join(', ')}`
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'options', value: describe(options), expected })
  }
  const unknown = Object.keys(options).find((name) => !known.includes(name))
  if (unknown === undefined) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'options',
    value: `one with ${unknown}`,
    expected: `no others than ${known.join(', ')}`,
  })
}

/** Not so where the caller has no types, or has given its arguments in another order. */
function isObject(options: unknown): boolean {
  return typeof options === 'object' && options !== null && !Array.isArray(options)
}

function describe(value: unknown): string {
  if (Array.isArray(value)) return `an array of ${String(value.length)}`
  if (typeof value === 'function') return 'a function'
  return typeof value === 'string' ? JSON.stringify(value) : String(value)
}
