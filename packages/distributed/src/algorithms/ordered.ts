import { untilAll, type Channel, type Message, type Steps } from './channel.ts'
import { bytesOf, type Operation } from '../operation.ts'
import { arithmeticOf, foldInRankOrder, otherRanks, type Arithmetic } from './algorithm.ts'
import { bufferOf, cutIntoChunks, cutIntoSegments, partBytes, type Piece } from './pieces.ts'

/*
 * Reductions that combine in rank order, ((r0 + r1) + r2) + ..., so that the result does not depend
 * on the algorithm, the transport or the topology. The buffer is cut into n chunks, one per rank.
 * Every rank sends each chunk directly to its owner. The owner folds the n contributions, segment
 * by segment, and sends the result to the ranks that need it.
 *
 * Sent per rank, of S bytes: (n-1)/n S in one step for reduce-scatter, and 2(n-1)/n S in two steps
 * for all-reduce. For reduce, each rank sends (n-1)/n S, then every rank but the root sends S/n.
 * The total is the same as with the ring, in n-1 simultaneous messages.
 */

export function* orderedAllReduce(channel: Channel, operation: Operation): Steps {
  const everybody = Array.from({ length: channel.size }, (_, rank) => rank)
  yield* foldInPlace(channel, operation, everybody)
}

export function* orderedReduce(channel: Channel, operation: Operation): Steps {
  yield* foldInPlace(channel, operation, [operation.peer])
}

export function* orderedReduceScatter(channel: Channel, operation: Operation): Steps {
  const { input, output } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const bytes = bytesOf(operation)
  const slices = Array.from({ length: channel.size }, (_, i) => ({ at: input + i * bytes, bytes }))
  const sends = sendShares(channel, slices)
  yield* foldShare(channel, arithmetic, slices[channel.rank]!, output, () => undefined)
  yield* untilAll(sends)
}

function* foldInPlace(channel: Channel, operation: Operation, wanted: readonly number[]): Steps {
  const { rank, size } = channel
  const arithmetic = arithmeticOf(channel, operation)
  const chunks = cutIntoChunks(bufferOf(operation), size)
  const own = chunks[rank]!
  const others = wanted.filter((peer) => peer !== rank)
  const sends = sendShares(channel, chunks)
  yield* foldShare(channel, arithmetic, own, own.at, ({ at, bytes }) => {
    for (const peer of others) sends.push(channel.send(peer, at, bytes))
  })
  const owners = wanted.includes(rank) ? otherRanks(channel) : []
  const results = owners.flatMap((owner) =>
    segmentsOf(chunks[owner]!, size).map(({ at, bytes }) => channel.receive(owner, at, bytes)),
  )
  yield* untilAll(results)
  yield* untilAll(sends)
}

function sendShares(channel: Channel, shares: readonly Piece[]): Message[] {
  const { size } = channel
  return otherRanks(channel).flatMap((peer) =>
    segmentsOf(shares[peer]!, size).map(({ at, bytes }) => channel.send(peer, at, bytes)),
  )
}

function segmentsOf(piece: Piece, size: number): Piece[] {
  return cutIntoSegments(piece, partBytes(size - 1))
}

/** Folds the contributions of all ranks to this rank's chunk, and writes the result to `output`. */
function* foldShare(
  channel: Channel,
  arithmetic: Arithmetic,
  share: Piece,
  output: number,
  onFolded: (segment: Piece) => void,
): Steps {
  const { rank, size } = channel
  const segments = segmentsOf(share, size)
  const others = otherRanks(channel)
  const slots = [0, 1].map(() => others.map(() => channel.scratch(segments[0]!.bytes)))
  const post = (i: number): Message[] =>
    others.map((peer, k) => channel.receive(peer, slots[i % 2]![k]!, segments[i]!.bytes))
  const coming = segments.slice(0, 2).map((_, i) => post(i))
  for (const [i, { at, bytes }] of segments.entries()) {
    const received = coming[i]!
    yield* untilAll(received)
    const places = Array.from({ length: size }, (_, peer) =>
      peer === rank ? at : received[(peer - rank - 1 + size) % size]!.at,
    )
    const result = output + at - share.at
    foldInRankOrder(arithmetic, channel, places, result, bytes)
    arithmetic.finish(result, bytes)
    onFolded({ at: result, bytes })
    if (i + 2 < segments.length) coming.push(post(i + 2))
  }
}
