import { until, type Channel } from '../engine/channel.ts'
import type { Operation } from '../engine/operation.ts'
import type { Steps } from '../engine/task.ts'
import { arithmeticOf, type Arithmetic } from './algorithm.ts'
import { hypercubePlace, type HypercubePlace } from './hypercube.ts'

/** What ranks with a corner do between taking in and giving back. */
export type CornerSteps = (
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

/**
 * All-reduce by recursive doubling (Thakur, Rabenseifner & Gropp, 2005): in round k corners whose
 * numbers differ in bit k exchange their whole buffers and add them up, so log2 n rounds of S bytes.
 * The fewest steps of all, for small buffers.
 *
 * Both partners add the same two buffers, and float addition commutes, so all ranks end with the
 * same bits.
 */
export function recursiveDoublingAllReduce(channel: Channel, operation: Operation): Steps {
  return allReduceOnHypercube(channel, operation, exchangeWhole)
}

function* exchangeWhole(
  channel: Channel,
  { corner, corners, rankAt }: HypercubePlace,
  at: number,
  bytes: number,
  arithmetic: Arithmetic,
): Steps {
  const scratch = channel.scratch(bytes)
  for (let bit = 1; bit < corners; bit <<= 1) {
    const partner = rankAt(corner ^ bit)
    const received = channel.receive(partner, scratch, bytes)
    const sent = channel.send(partner, at, bytes)
    yield* until(received)
    yield* until(sent)
    arithmetic.combine(at, at, scratch, bytes)
  }
  arithmetic.finish(at, bytes)
}
