import { dtypes } from '../dtype.ts'
import type { Operation } from '../operation.ts'
import type { Channel } from './channel.ts'

/**
 * A part of a buffer. In all algorithms here, a *chunk* is one rank's share of a buffer, and a
 * *segment* is a part of a chunk. Several segments are in flight.
 */
export interface Piece {
  /** Offset in bytes from the start of the buffer. */
  readonly at: number
  readonly bytes: number
}

/** Chunk boundaries are multiples of this many bytes, for SIMD and whole elements. */
export const GRAIN = 64

/** Cuts `bytes` bytes into `parts` chunks of nearly equal size. The last chunks may be empty. */
export function cutIntoChunks(bytes: number, parts: number): Piece[] {
  return Array.from({ length: parts }, (_, i) => chunksOf(bytes, parts, i, 1))
}

/** Returns `count` consecutive chunks of `cutIntoChunks` as one piece. */
export function chunksOf(bytes: number, parts: number, first: number, count: number): Piece {
  const share = Math.ceil(bytes / parts / GRAIN) * GRAIN
  const at = Math.min(bytes, first * share)
  return { at, bytes: Math.min(bytes, (first + count) * share) - at }
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

/**
 * Largest segment in bytes if the contributions of other ranks go to scratch memory. A few of them
 * fit into the caches.
 */
const LARGEST_PART = 256 * 1024
/**
 * Scratch memory in bytes for the contributions of other ranks. It is limited, because many
 * operations may run at once.
 */
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
  /**
   * Number of elements, for the fingerprints of uneven collectives; undefined if all slices are
   * equal.
   */
  readonly count: number | undefined
}

/**
 * Returns the slices of a buffer in rank order: `count` elements each, or as many as the
 * operation's table says.
 */
export function slicesOf({ size, heap }: Channel, operation: Operation): Slice[] {
  return cut(heap.doubles, size, operation, 0)
}

/** Returns the slices that an all-to-all sends and receives. */
export function exchangedSlicesOf(
  { size, heap }: Channel,
  operation: Operation,
): { sent: Slice[]; coming: Slice[] } {
  return {
    sent: cut(heap.doubles, size, operation, 0),
    coming: cut(heap.doubles, size, operation, operation.table === 0 ? 0 : size),
  }
}

function cut(
  doubles: Float64Array,
  size: number,
  { count, dtype, table }: Operation,
  first: number,
): Slice[] {
  const element = dtypes[dtype].bytes
  let at = 0
  return Array.from({ length: size }, (_, rank) => {
    const given = table === 0 ? undefined : doubles[table / 8 + first + rank]!
    const bytes = (given ?? count) * element
    const slice = { at, bytes, count: given }
    at += bytes
    return slice
  })
}
