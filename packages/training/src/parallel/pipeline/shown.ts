/** What somebody has given in the place of something else, in words for an error. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value)
  if (typeof value === 'function') return 'a function'
  if (typeof value !== 'object' || value === null) return String(value)
  const { constructor: kind } = value as { constructor?: { name: string } }
  if (kind !== undefined && kind !== Object) return `an instance of ${kind.name}`
  const keys = Object.keys(value)
  return keys.length === 0 ? 'an empty object' : `an object with ${keys.join(', ')}`
}
