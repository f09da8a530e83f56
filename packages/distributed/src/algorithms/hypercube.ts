import { until, type Channel, type Steps } from './channel.ts'
import type { Operation } from '../operation.ts'
import { arithmeticOf, type Arithmetic } from './algorithm.ts'

/** The place of a rank in the largest hypercube that fits into its group. */
export interface HypercubePlace {
  /** Corners: the largest power of two up to the group's size. */
  readonly corners: number
  /**
   * What this rank does about the `size - corners` ranks that have no corner. The first twice as
   * many ranks pair up: the even one gives its buffer to the odd one before, and gets the result
   * after; all others take part alone.
   */
  readonly role: 'gives' | 'takes' | 'alone'
  /** Its corner; a rank that gives has none (-1). */
  readonly corner: number
  /** The rank at a corner. */
  readonly rankAt: (corner: number) => number
}

function hypercubePlace(rank: number, size: number): HypercubePlace {
  const corners = 2 ** Math.floor(Math.log2(size))
  const extra = size - corners
  const rankAt = (corner: number): number => (corner < extra ? 2 * corner + 1 : corner + extra)
  if (rank >= 2 * extra) return { corners, role: 'alone', corner: rank - extra, rankAt }
  return rank % 2 === 0
    ? { corners, role: 'gives', corner: -1, rankAt }
    : { corners, role: 'takes', corner: rank >> 1, rankAt }
}

/** What ranks with a corner do between taking in and giving back. */
type CornerSteps = (
  channel: Channel,
  place: HypercubePlace,
  at: number,
  bytes: number,
  arithmetic: Arithmetic,
) => Steps

/** An all-reduce on a hypercube, for any number of ranks: two more steps where it is no power of two. */
export function* allReduceOnHypercube(
  channel: Channel,
  operation: Operation,
  steps: CornerSteps,
): Steps {
  const { rank } = channel
  const { input: at, count } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const bytes = count * arithmetic.bytesPerElement
  const place = hypercubePlace(rank, channel.size)
  if (place.role === 'gives') {
    const given = channel.send(rank + 1, at, bytes)
    const result = channel.receive(rank + 1, at, bytes)
    yield* until(given)
    yield* until(result)
    return
  }
  if (place.role === 'takes') {
    const scratch = channel.scratch(bytes)
    yield* until(channel.receive(rank - 1, scratch, bytes))
    arithmetic.combine(at, at, scratch, bytes)
  }
  yield* steps(channel, place, at, bytes, arithmetic)
  if (place.role === 'takes') yield* until(channel.send(rank - 1, at, bytes))
}
