import { decode, encode, tsrError } from '@tsrun/core'

/** Largest encoded value in bytes. */
const LARGEST = 16 * 1024 * 1024

/** Encodes a value as MessagePack. The sender first sends its length in bytes. */
export function encodeObject(value: unknown) {
  const bytes = new Uint8Array(encode(value, LARGEST))
  return { length: Int32Array.of(bytes.length), bytes }
}

/** Decodes a value. There are no bytes if a fake peer sent it. */
export function decodeObject(bytes: Uint8Array): unknown {
  return bytes.length === 0 ? undefined : decode(bytes, LARGEST)
}

/**
 * Allocates space for encoded values of these lengths, one after the other.
 * @throws ERR_TSR_MESSAGE_TOO_LARGE for a length that no rank sends
 */
export function roomFor(lengths: Int32Array): Uint8Array {
  const wrong = lengths.find((bytes) => bytes < 0 || bytes > LARGEST)
  if (wrong !== undefined) {
    throw tsrError('ERR_TSR_MESSAGE_TOO_LARGE', { bytes: wrong, limit: LARGEST })
  }
  return new Uint8Array(lengths.reduce((a, b) => a + b, 0))
}

export function packObjects(values: readonly unknown[]) {
  const parts = values.map(encodeObject)
  const lengths = Int32Array.from(parts, ({ bytes }) => bytes.length)
  const bytes = roomFor(lengths)
  let at = 0
  for (const part of parts) {
    bytes.set(part.bytes, at)
    at += part.bytes.length
  }
  return { lengths, bytes }
}

export function unpackObjects(lengths: Int32Array, bytes: Uint8Array): unknown[] {
  let end = 0
  return Array.from(lengths, (length) => decodeObject(bytes.subarray(end, (end += length))))
}
