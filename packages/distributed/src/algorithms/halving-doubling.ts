import { until, type Channel, type Steps } from './channel.ts'
import type { Operation } from '../operation.ts'
import type { Arithmetic } from './algorithm.ts'
import { cutIntoChunks, type Piece } from './chunks.ts'
import { allReduceOnHypercube, type HypercubePlace } from './hypercube.ts'

/**
 * All-reduce by recursive halving and doubling (Rabenseifner, 2004): a reduce-scatter that halves
 * what is exchanged in each round, then an all-gather that doubles it. 2 log2 n steps and
 * 2(n-1)/n S bytes a rank: the bytes of the ring in fewer steps, for buffers of middle size.
 */
export function halvingDoublingAllReduce(channel: Channel, operation: Operation): Steps {
  return allReduceOnHypercube(channel, operation, halveAndDouble)
}

function* halveAndDouble(
  channel: Channel,
  { corner, corners, rankAt }: HypercubePlace,
  at: number,
  bytes: number,
  arithmetic: Arithmetic,
): Steps {
  const chunks = cutIntoChunks(bytes, corners)
  const half = (first: number, count: number): Piece => {
    const end = chunks[first + count - 1]!
    const begin = chunks[first]!.at
    return { at: at + begin, bytes: end.at + end.bytes - begin }
  }
  /** The partner at a distance, with the halves that each of the two keeps. */
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
    const received = channel.receive(partner, theirs.at, theirs.bytes)
    const sent = channel.send(partner, mine.at, mine.bytes)
    yield* until(received)
    yield* until(sent)
  }
}
