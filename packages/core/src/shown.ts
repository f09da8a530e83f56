import { isPromise } from 'node:util/types'

/** Describes any value in an error message. Strings are quoted, so that '1' can be told from 1. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value)
  if (Array.isArray(value)) return `an array of ${String(value.length)}`
  if (isPromise(value)) return 'a promise'
  if (typeof value === 'function') return 'a function'
  return typeof value === 'object' && value !== null ? shownObject(value) : String(value)
}

/** How many keys of a plain object are listed: enough to recognize it. */
const MOST_KEYS = 5

function shownObject(value: object): string {
  const { constructor: kind } = value as { constructor?: { name: string } }
  if (kind !== undefined && kind !== Object) return `an instance of ${kind.name}`
  const keys = Object.keys(value)
  const some = keys.length > MOST_KEYS ? [...keys.slice(0, MOST_KEYS), '...'] : keys
  return some.length === 0 ? 'an empty object' : `an object with ${some.join(', ')}`
}
