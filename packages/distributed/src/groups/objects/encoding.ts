import { decode, encode, tsrError } from '@tsrun/core'

/** Largest encoded value in bytes. */
const LARGEST = 16 * 1024 * 1024

/** Encodes a value as MessagePack. The sender first sends its length in bytes. */
export function encodeObject(value: unknown) {
  const bytes = new Uint8Array(encode(value, LARGEST))
  return { length: Int32Array.of(bytes.length), bytes }
}

/** Decodes a value. Returns undefined for zero bytes, which only a fake peer sends. */
export function decodeObject(bytes: Uint8Array): unknown {
  return bytes.length === 0 ? undefined : decode(bytes, LARGEST)
}

/**
 * Returns the largest of the lengths of encoded values.
 * @throws ERR_TSR_MESSAGE_TOO_LARGE for a length that is negative or above the limit
 */
export function largestOf(lengths: Int32Array): number {
  const wrong = lengths.find((bytes) => bytes < 0 || bytes > LARGEST)
  if (wrong !== undefined) {
    throw tsrError('ERR_TSR_MESSAGE_TOO_LARGE', { bytes: wrong, limit: LARGEST })
  }
  return Math.max(...lengths)
}

/** Allocates space for encoded values, one after the other. @throws ERR_TSR_MESSAGE_TOO_LARGE */
export function roomFor(lengths: Int32Array): Uint8Array {
  largestOf(lengths)
  return new Uint8Array(lengths.reduce((a, b) => a + b, 0))
}

/** Decodes values that lie one after the other or, if `slot` is given, in slots of that size. */
export function unpackObjects(lengths: Int32Array, bytes: Uint8Array, slot?: number): unknown[] {
  let end = 0
  return Array.from(lengths, (length, i) => {
    const at = slot === undefined ? end : i * slot
    end = at + length
    return decodeObject(bytes.subarray(at, end))
  })
}
