import { types } from 'node:util'
import { tsrError } from '@tsrun/core'

const LONE_SURROGATE = /\p{Surrogate}/u

/** @throws ERR_TSR_ARGUMENT: text that UTF-8 cannot carry would come back as another key */
export function checkKey(name: string, key: unknown): asserts key is string {
  if (typeof key !== 'string') throw argumentError(name, key, 'a string')
  if (LONE_SURROGATE.test(key)) throw argumentError(name, key, 'text without lone surrogates')
}

/** @throws ERR_TSR_ARGUMENT */
export function checkKeys(keys: unknown): asserts keys is readonly string[] {
  if (!Array.isArray(keys)) throw argumentError('keys', keys, 'an array of strings')
  keys.forEach((key) => {
    checkKey('key', key)
  })
}

/** @throws ERR_TSR_ARGUMENT */
export function checkDuration(name: string, milliseconds: unknown): asserts milliseconds is number {
  if (typeof milliseconds === 'number' && milliseconds >= 0) return
  throw argumentError(name, milliseconds, 'milliseconds, 0 or more')
}

/** @throws ERR_TSR_ARGUMENT, without the value */
export function checkToken(token: unknown): asserts token is string {
  if (typeof token !== 'string') throw argumentError('token', typeof token, 'a string')
}

/** @throws ERR_TSR_ARGUMENT */
export function checkAmount(amount: unknown): asserts amount is number {
  if (Number.isSafeInteger(amount)) return
  throw argumentError('amount', amount, 'an integer within 2^53')
}

/** @throws ERR_TSR_ARGUMENT */
export function toBytes(name: string, value: Uint8Array | string): Uint8Array {
  if (typeof value === 'string') return Buffer.from(value)
  if (types.isUint8Array(value))
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength)
  throw argumentError(name, value, 'a string or a Uint8Array')
}

export function argumentError(name: string, value: unknown, expected: string): Error {
  const shown = typeof value === 'string' ? JSON.stringify(value) : String(value)
  return tsrError('ERR_TSR_ARGUMENT', { name, value: shown.slice(0, 80), expected })
}
