/** Data that has arrived from a peer. */
export interface Chunks {
  chunks: Uint8Array[]
  /** Number of bytes already taken from the first chunk. */
  offset: number
}

/** Moves up to `length` bytes to offset `at` of `bytes`. Returns how many it has moved. */
export function takeChunks(from: Chunks, bytes: Uint8Array, at: number, length: number): number {
  let taken = 0
  while (taken < length) {
    const [chunk] = from.chunks
    if (chunk === undefined) break
    const part = Math.min(length - taken, chunk.length - from.offset)
    bytes.set(chunk.subarray(from.offset, from.offset + part), at + taken)
    taken += part
    from.offset += part
    if (from.offset < chunk.length) break
    from.chunks.shift()
    from.offset = 0
  }
  return taken
}
