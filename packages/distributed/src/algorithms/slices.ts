import type { Channel } from './channel.ts'
import type { Operation } from '../operation.ts'
import { dtypes } from '../dtype.ts'
import type { Piece } from './chunks.ts'

/** One rank's part of a buffer that has a part for each. */
export interface Slice extends Piece {
  /** Elements, for the fingerprints of uneven collectives; undefined where all are equal. */
  readonly count: number | undefined
}

/** The slices of the buffer in the order of ranks: all of `count` elements, or as the table says. */
export function slicesOf({ size, heap }: Channel, operation: Operation): Slice[] {
  return cut(heap.doubles, size, operation, 0)
}

/** The slices that an all-to-all sends, and those that come. */
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
