import {
  argumentError,
  count,
  host,
  isStrongToken,
  number,
  object,
  text,
  TOKEN_EXPECTED,
  where,
} from '@tsrun/core'
import type { StoreTls } from './secure-sockets.ts'

const LONE_SURROGATE = /\p{Surrogate}/u

/** Keys must not contain a lone surrogate, which UTF-8 cannot encode. */
export const keyRule = text.refine(
  (key) => !LONE_SURROGATE.test(key),
  'a string without lone surrogates',
)
const keysRule = where<readonly string[]>(Array.isArray, 'an array of strings')
export const durationRule = number.refine((duration) => duration >= 0, 'milliseconds, 0 or more')
export const amountRule = count({ from: Number.MIN_SAFE_INTEGER })
/** The empty token admits every client that reaches the store. Errors must not show the token. */
export const tokenRule = text
  .refine((token) => token === '' || isStrongToken(token), `${TOKEN_EXPECTED}; or '' for none`)
  .secret()

const certificate = object({ cert: text, key: text })

/** Errors must not show the key of a certificate. */
export const tlsRule = where<StoreTls | false>(
  (tls) => typeof tls === 'boolean' || certificate.is(tls),
  'true for keys that come from the token, { cert, key, ca } in the format PEM, or false',
)
  .secret()
  .default(false)

/** @throws ERR_TSR_ARGUMENT for encryption by an empty token */
export function toTls(tls: StoreTls | false, token: string): StoreTls | undefined {
  if (tls === true && token === '') {
    const expected = `${TOKEN_EXPECTED}, from which the keys of tls come`
    throw argumentError('token', 'an empty text', expected)
  }
  return tls === false ? undefined : tls
}

export function checkKeys(keys: readonly string[]): readonly string[] {
  return keysRule.check('keys', keys).map((key) => keyRule.check('key', key))
}

const bytesRule = where<Uint8Array | string>(
  (value) => text.is(value) || host.types.isUint8Array(value),
  'a string or a Uint8Array',
)

/** Converts a value to bytes; text becomes UTF-8. @throws ERR_TSR_ARGUMENT */
export function toBytes(name: string, value: Uint8Array | string): Uint8Array {
  return host.bytesOf(bytesRule.check(name, value))
}
