import { until, type Channel, type Steps } from './channel.ts'
import type { Operation } from '../operation.ts'
import type { Arithmetic } from './algorithm.ts'
import { allReduceOnHypercube, type HypercubePlace } from './hypercube.ts'

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
