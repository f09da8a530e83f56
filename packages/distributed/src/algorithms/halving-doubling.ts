import { bytesOf } from '../operation.ts'
import {
  arithmeticOf,
  rotate,
  until,
  untilAll,
  type Algorithms,
  type Arithmetic,
  type Channel,
  type Steps,
} from './channel.ts'
import { chunksOf, type Piece } from './pieces.ts'

/**
 * Returns a rank's place in the largest hypercube that fits into its group: its corner, or -1 without
 * one. `corners` is the largest power of two up to the group's size. The first 2 * (size - corners)
 * ranks form pairs, to handle the ranks without a corner. The even rank of a pair gives its buffer to
 * the odd rank, and gets the result at the end. All other ranks take part alone.
 */
function hypercubePlace(rank: number, size: number) {
  const corners = 2 ** Math.floor(Math.log2(size))
  const extra = size - corners
  const rankAt = (corner: number): number => (corner < extra ? 2 * corner + 1 : corner + extra)
  if (rank >= 2 * extra) return { corners, role: 'alone', corner: rank - extra, rankAt }
  return rank % 2 === 0
    ? { corners, role: 'gives', corner: -1, rankAt }
    : { corners, role: 'takes', corner: rank >> 1, rankAt }
}

/** The steps of a rank with a corner, except its exchange with a rank without a corner. */
type CornerSteps = (
  channel: Channel,
  place: ReturnType<typeof hypercubePlace>,
  at: number,
  bytes: number,
  arithmetic: Arithmetic,
) => Steps

/** All-reduce for any number of ranks. Takes two more steps if the number is not a power of two. */
function onHypercube(steps: CornerSteps): Algorithms {
  return {
    *allReduce(channel, operation) {
      const { rank } = channel
      const { input: at } = operation
      const arithmetic = arithmeticOf(channel, operation)
      const bytes = bytesOf(operation)
      const place = hypercubePlace(rank, channel.size)
      if (place.role === 'gives') {
        yield* untilAll([channel.send(rank + 1, at, bytes), channel.receive(rank + 1, at, bytes)])
        return
      }
      if (place.role === 'takes') {
        const scratch = channel.scratch(bytes)
        yield* until(channel.receive(rank - 1, scratch, bytes))
        arithmetic.combine(at, at, scratch, bytes)
      }
      yield* steps(channel, place, at, bytes, arithmetic)
      if (place.role === 'takes') yield* until(channel.send(rank - 1, at, bytes))
    },
  }
}

/**
 * All-reduce by recursive doubling (Thakur, Rabenseifner & Gropp, 2005). In round k, corners whose
 * numbers differ in bit k exchange their whole buffers and add them: log2 n rounds of S bytes. Of
 * all algorithms it has the fewest steps, which suits small buffers.
 *
 * Both partners add the same two buffers in the same order, so all ranks get the same bits. (The
 * sum of two NaNs is the first NaN, with its sign.)
 */
export const recursiveDoubling = onHypercube(function* (
  channel,
  { corner, corners, rankAt },
  at,
  bytes,
  arithmetic,
) {
  const scratch = channel.scratch(bytes)
  for (let bit = 1; bit < corners; bit <<= 1) {
    const partner = rankAt(corner ^ bit)
    yield* untilAll([channel.receive(partner, scratch, bytes), channel.send(partner, at, bytes)])
    const [first, second] = (corner & bit) === 0 ? [at, scratch] : [scratch, at]
    arithmetic.combine(at, first, second, bytes)
  }
  arithmetic.finish(at, bytes)
})

/**
 * All-reduce by recursive halving and doubling (Rabenseifner, 2004): a reduce-scatter that halves
 * the exchanged data in each round, then an all-gather that doubles it. Each rank sends 2(n-1)/n S
 * bytes in 2 log2 n steps. That is as many bytes as with the ring in fewer steps, which suits
 * buffers of medium size.
 */
export const halvingDoubling = onHypercube(function* (
  channel,
  { corner, corners, rankAt },
  at,
  bytes,
  arithmetic,
) {
  const half = (first: number, count: number): Piece =>
    chunksOf({ at, bytes }, corners, first, count)
  /** Returns the partner at a distance, and the halves that this rank and the partner keep. */
  const exchange = (distance: number) => ({
    partner: rankAt(corner ^ distance),
    mine: half(corner & -distance, distance),
    theirs: half((corner ^ distance) & -distance, distance),
  })
  const scratch = channel.scratch(half(0, Math.ceil(corners / 2)).bytes)
  for (let distance = corners >> 1; distance > 0; distance >>= 1) {
    const { partner, mine, theirs } = exchange(distance)
    const received = channel.receive(partner, scratch, mine.bytes)
    const sent = channel.send(partner, theirs.at, theirs.bytes)
    yield* until(received)
    arithmetic.combine(mine.at, mine.at, scratch, mine.bytes)
    yield* until(sent)
  }
  const own = half(corner, 1)
  arithmetic.finish(own.at, own.bytes)
  for (let distance = 1; distance < corners; distance <<= 1) {
    const { partner, mine, theirs } = exchange(distance)
    yield* untilAll([
      channel.receive(partner, theirs.at, theirs.bytes),
      channel.send(partner, mine.at, mine.bytes),
    ])
  }
})

export const recursiveHalving = {
  /**
   * Reduce-scatter by halving (Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce
   * Algorithms", 2024). It is for small buffers, because partial sums need scratch memory. Rank r
   * rotates its slices, so that slice i is for r + i. In each step, rank r keeps the first k slices,
   * which are half of them. It sends the other slices to r + k, and adds the slices from r - k. At
   * the end, slice 0 is complete. For any n, each rank sends (n-1)/n S bytes in ceil(log2 n) steps.
   */
  *reduceScatter(channel, operation) {
    const { rank, size: n, kernels } = channel
    const { input, output } = operation
    const arithmetic = arithmeticOf(channel, operation)
    const slice = bytesOf(operation)
    const sums = channel.scratch(n * slice)
    const arrived = channel.scratch(Math.floor(n / 2) * slice)
    rotate(channel, sums, input, slice, n, rank)
    for (let held = n; held > 1;) {
      const kept = Math.ceil(held / 2)
      const bytes = (held - kept) * slice
      const received = channel.receive((rank - kept + n) % n, arrived, bytes)
      const sent = channel.send((rank + kept) % n, sums + kept * slice, bytes)
      yield* until(received)
      arithmetic.combine(sums, sums, arrived, bytes)
      yield* until(sent)
      held = kept
    }
    kernels.copy(output, sums, slice)
    arithmetic.finish(output, slice)
  },
} satisfies Algorithms
