import type { Action } from './action.ts'

/**
 * One rank's share of a looped, breadth-first schedule (Lamy-Poirier, 2022): stages dealt out in turn
 * as for `interleaved`, and GPipe over all of them. Every micro-batch goes forward through one chunk,
 * then every one through the next; backward in the reverse order of the chunks. The bubble is that of
 * `interleaved`, also where micro-batches do not divide by the ranks; the price is memory: all
 * micro-batches of all chunks are in flight.
 */
export function looped(
  rank: number,
  ranks: number,
  microbatches: number,
  chunks: number,
): Action[] {
  const list = (kind: 'F' | 'B', chunk: number): Action[] =>
    Array.from({ length: microbatches }, (_, microbatch) => ({
      kind,
      stage: chunk * ranks + rank,
      microbatch,
    }))
  const order = Array.from({ length: chunks }, (_, chunk) => chunk)
  return [
    ...order.flatMap((chunk) => list('F', chunk)),
    ...order.reverse().flatMap((chunk) => list('B', chunk)),
  ]
}
