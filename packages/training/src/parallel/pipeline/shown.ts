import { shown as shownValue } from '@tsrun/core'

/** `shown` of the core, and of an object what it is. */
export function shown(value: unknown): string {
  if (typeof value !== 'object' || value === null) return shownValue(value)
  const { constructor: kind } = value as { constructor?: { name: string } }
  if (kind !== undefined && kind !== Object) return `an instance of ${kind.name}`
  const keys = Object.keys(value)
  return keys.length === 0 ? 'an empty object' : `an object with ${keys.join(', ')}`
}
