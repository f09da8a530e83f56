import { decode, encode, tsrError } from '@tsrun/core'

/** Largest encoded value in bytes. */
const LARGEST = 16 * 1024 * 1024

/** @throws ERR_TSR_MESSAGE_TOO_LARGE for a length that no rank sends */
export function wordsFor(bytes: number): number {
  if (bytes < 0 || bytes > LARGEST) {
    throw tsrError('ERR_TSR_MESSAGE_TOO_LARGE', { bytes, limit: LARGEST })
  }
  return Math.ceil(bytes / 4)
}

/**
 * Encodes a value as MessagePack, padded to 32-bit words. The sender first sends its length in
 * bytes.
 */
export function encodeObject(value: unknown) {
  const bytes = encode(value, LARGEST)
  const words = new Int32Array(wordsFor(bytes.length))
  new Uint8Array(words.buffer).set(bytes)
  return { length: Int32Array.of(bytes.length), words }
}

/**
 * Decodes a value.
 * @param length - length of the encoded value in bytes, without padding; 0 if a fake peer sent it
 */
export function decodeObject(words: Int32Array, length: number): unknown {
  if (length === 0) return undefined
  return decode(new Uint8Array(words.buffer, words.byteOffset, length), LARGEST)
}

/** Several concatenated values. */
export interface PackedObjects {
  /** Length of each value in bytes. */
  readonly lengths: Int32Array
  /** Length of each value in words. */
  readonly counts: number[]
  readonly words: Int32Array
}

export function packObjects(values: readonly unknown[]): PackedObjects {
  const parts = values.map(encodeObject)
  const lengths = Int32Array.from(parts, ({ length }) => length[0]!)
  const { counts, words } = roomFor(lengths)
  let at = 0
  for (const part of parts) {
    words.set(part.words, at)
    at += part.words.length
  }
  return { lengths, counts, words }
}

/** Allocates space for encoded values of these lengths in bytes. */
export function roomFor(lengths: Int32Array): PackedObjects {
  const counts = Array.from(lengths, wordsFor)
  const words = new Int32Array(counts.reduce((a, b) => a + b, 0))
  return { lengths, counts, words }
}

export function unpackObjects({ lengths, counts, words }: PackedObjects): unknown[] {
  let at = 0
  return counts.map((count, i) => {
    const value = decodeObject(words.subarray(at, at + count), lengths[i]!)
    at += count
    return value
  })
}
