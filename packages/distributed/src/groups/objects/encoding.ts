import { decode, encode } from '@tsrun/core'

/** A value as MessagePack in words of 32 bits, and its length in bytes, which is sent before it. */
export interface EncodedObject {
  readonly length: Int32Array
  readonly words: Int32Array
}

export function wordsFor(bytes: number): number {
  return Math.ceil(bytes / 4)
}

export function encodeObject(value: unknown): EncodedObject {
  const bytes = encode(value)
  const words = new Int32Array(wordsFor(bytes.length))
  new Uint8Array(words.buffer).set(bytes)
  return { length: Int32Array.of(bytes.length), words }
}

/** @param length - in bytes */
export function decodeObject(words: Int32Array, length: number): unknown {
  return decode(new Uint8Array(words.buffer, words.byteOffset, length))
}

/** Several values one after the other. */
export interface PackedObjects {
  /** Bytes of each. */
  readonly lengths: Int32Array
  /** Words of each. */
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

/** Room for values of these lengths in bytes. */
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
