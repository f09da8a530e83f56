import { isPromise } from 'node:util/types'

/** A value of any kind, for the sentence of an error: a word in quotes, so that '1' is not 1. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value)
  if (Array.isArray(value)) return `an array of ${String(value.length)}`
  if (isPromise(value)) return 'a promise'
  if (typeof value === 'function') return 'a function'
  return String(value)
}
