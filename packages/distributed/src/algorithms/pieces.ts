import { dtypes } from '../dtype.ts'
import { bytesOf, type Operation } from '../operation.ts'
import type { Channel } from './channel.ts'

/**
 * A part of a buffer. In all algorithms here, a *chunk* is one rank's share of a buffer, and a
 * *segment* is a part of a chunk. Several segments are in flight.
 */
export interface Piece {
  /** Offset in bytes: in the heap, or from the start of the buffer. */
  readonly at: number
  readonly bytes: number
}

/** Chunk boundaries are multiples of this many bytes, for SIMD and whole elements. */
export const GRAIN = 64

/** Returns the whole buffer of an in-place operation. The offset is relative to the heap. */
export function bufferOf(operation: Operation): Piece {
  return { at: operation.input, bytes: bytesOf(operation) }
}

/** Cuts a buffer into `parts` chunks of nearly equal size. The last chunks may be empty. */
export function cutIntoChunks(buffer: Piece, parts: number): Piece[] {
  return Array.from({ length: parts }, (_, i) => chunksOf(buffer, parts, i, 1))
}

/** Returns `count` consecutive chunks of `cutIntoChunks` as one piece. */
export function chunksOf({ at, bytes }: Piece, parts: number, first: number, count: number): Piece {
  const share = Math.ceil(bytes / parts / GRAIN) * GRAIN
  const before = Math.min(bytes, first * share)
  return { at: at + before, bytes: Math.min(bytes, (first + count) * share) - before }
}

const SMALLEST_SEGMENT = 256 * 1024
const LARGEST_SEGMENT = 512 * 1024

/**
 * Returns the size of a segment in bytes. It is a quarter of a chunk, within limits, so that four
 * segments can be in flight. Below the lower limit, the messages cost more than their overlap
 * saves.
 */
export function segmentBytes(chunkBytes: number): number {
  const quarter = Math.ceil(chunkBytes / 4 / GRAIN) * GRAIN
  return Math.min(LARGEST_SEGMENT, Math.max(SMALLEST_SEGMENT, quarter))
}

/** Cuts a chunk into segments of `size` bytes; an empty chunk has one empty segment. */
export function cutIntoSegments({ at, bytes }: Piece, size: number): Piece[] {
  const count = Math.max(1, Math.ceil(bytes / size))
  return Array.from({ length: count }, (_, i) => ({
    at: at + i * size,
    bytes: Math.min(size, bytes - i * size),
  }))
}

/** Largest segment in bytes that goes to scratch memory. A few fit into the caches. */
const LARGEST_PART = 256 * 1024
/** Limit of scratch memory in bytes, because many operations may run at once. */
const PARTS_ROOM = 4 * 1024 * 1024

/**
 * Returns a segment size for which the segments of `parts` other ranks fit into scratch memory
 * together.
 */
export function partBytes(parts: number): number {
  const share = Math.floor(PARTS_ROOM / parts / GRAIN) * GRAIN
  return Math.max(GRAIN, Math.min(LARGEST_PART, share))
}

/** The slice of one rank, in a buffer with one slice per rank. */
export interface Slice extends Piece {
  /** Elements of a slice of an uneven collective; undefined if all slices are equal. */
  readonly count: number | undefined
}

/**
 * Returns the slices of a buffer in rank order: `count` elements each, or as many as the
 * operation's table says.
 *
 * @param first - index in the table of the first slice. The slices that an all-to-all receives
 *   begin at the size of the group
 */
export function slicesOf(
  { size, heap }: Channel,
  { count, dtype, table }: Operation,
  first = 0,
): Slice[] {
  const element = dtypes[dtype].bytes
  let at = 0
  return Array.from({ length: size }, (_, rank) => {
    const given = table === 0 ? undefined : heap.doubles[table / 8 + first + rank]!
    const bytes = (given ?? count) * element
    const slice = { at, bytes, count: given }
    at += bytes
    return slice
  })
}
