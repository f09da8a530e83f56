import { tsrError } from '@tsrun/core'
import type { Request } from './requests.ts'

/** Longest key or queue name, in bytes of UTF-8. */
export const KEY_LIMIT = 8 * 1024
/** Longest value in bytes. */
export const VALUE_LIMIT = 8 * 1024 * 1024
/** Longest frame in bytes, whole request or reply. */
export const FRAME_LIMIT = 16 * 1024 * 1024

export function checkLimit(what: string, bytes: number, limit: number): void {
  if (bytes > limit) throw tsrError('ERR_TSR_STORE_LIMIT', { what, bytes, limit })
}

/**
 * Checks keys and values of a request; the client does it before it sends, the server again.
 *
 * @throws ERR_TSR_STORE_LIMIT
 */
export function checkRequest(request: Request): void {
  if ('key' in request) checkKey(request.key)
  if ('keys' in request) request.keys.forEach(checkKey)
  if ('value' in request) checkValue(request.value)
  if ('expected' in request) checkValue(request.expected)
  if ('desired' in request) checkValue(request.desired)
}

function checkKey(key: string): void {
  // UTF-8 takes one to three bytes for each UTF-16 unit.
  if (key.length * 3 > KEY_LIMIT) checkLimit('The key', Buffer.byteLength(key), KEY_LIMIT)
}

function checkValue(value: Uint8Array): void {
  checkLimit('The value', value.byteLength, VALUE_LIMIT)
}
