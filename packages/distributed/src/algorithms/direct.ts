import { bytesOf, SKIPPED, type Operation } from '../operation.ts'
import {
  arithmeticOf,
  otherRanks,
  until,
  untilAll,
  type Algorithm,
  type Algorithms,
  type Arithmetic,
  type Channel,
  type Message,
  type Steps,
} from './channel.ts'
import {
  bufferOf,
  cutIntoChunks,
  cutIntoSegments,
  partBytes,
  slicesOf,
  type Piece,
} from './pieces.ts'

/*
 * Direct exchange: every rank gets its data from every other rank, without intermediaries. Ranks that
 * share memory copy each byte once, from buffer to buffer, and the work is spread evenly. Over sockets,
 * the ring moves as many bytes with fewer simultaneous connections.
 *
 * all-reduce: the buffer is cut into n chunks. Rank r adds chunk r of all ranks, then fetches the sums
 * of the other chunks. Sent per rank, of S bytes: 2(n-1)/n S. Reduce-scatter and all-gather each send
 * half of that, (n-1)/n S. One rank adds each chunk, so all ranks get the same bits. It adds in rank
 * order, ((r0 + r1) + r2) + ..., so the result does not depend on the transport or the topology.
 *
 * reduce: each rank sends (n-1)/n S, then every rank but the root sends its sum of S/n to the root.
 *
 * broadcast: the root sends its S bytes to each of n-1 ranks.
 */

/** Number of segments that are sent in advance. */
const AHEAD = 3

const allReduce: Algorithm = function* (channel, operation) {
  const ranks = allRanks(channel)
  const chunks = cutIntoChunks(bufferOf(operation), channel.size)
  yield* reduceToOwners(channel, operation, ranks, chunks)
  yield* fetchFromOwners(channel, ranks, chunks)
}

/**
 * Reduces slices directly. `input` [n slices] is unchanged, and rank r's slice of the result goes
 * to `output`.
 */
const reduceScatter: Algorithm = function* (channel, operation) {
  const { input, output } = operation
  const bytes = bytesOf(operation)
  const ranks = allRanks(channel)
  const slices = ranks.map((rank) => ({ at: input + rank * bytes, bytes }))
  yield* reduceToOwners(channel, operation, ranks, slices, output)
}

export const direct = {
  allReduce,
  reduceScatter,

  /** Copies rank r's `input` to slice r of every `output`. */
  *allGather(channel, operation) {
    const { rank, kernels } = channel
    const { input, output } = operation
    const slice = bytesOf(operation)
    const own = output + rank * slice
    const started = otherRanks(channel).flatMap((peer) => [
      channel.send(peer, input, slice),
      channel.receive(peer, output + peer * slice, slice),
    ])
    if (own !== input) kernels.copy(own, input, slice)
    yield* untilAll(started)
  },

  *broadcast(channel, operation) {
    const { rank } = channel
    const { input: at, peer: root } = operation
    const bytes = bytesOf(operation)
    if (rank === root)
      yield* untilAll(otherRanks(channel).map((peer) => channel.send(peer, at, bytes)))
    else yield* until(channel.receive(root, at, bytes))
  },

  *send(channel, operation) {
    yield* until(channel.send(operation.peer, operation.input, bytesOf(operation)))
  },

  *recv(channel, operation) {
    const { input, count, peer, table } = operation
    if (count === SKIPPED) {
      channel.skip(peer)
      return
    }
    const matched = channel.receiveMatched(peer, input, bytesOf(operation))
    yield* until(matched)
    if (matched.message !== undefined) yield* until(matched.message)
    if (table !== 0) channel.heap.doubles[table / 8] = matched.source
  },
} satisfies Algorithms

/** The reductions of `direct`, for which the result must not depend on anything else. */
export const ordered = {
  allReduce,
  reduceScatter,

  /** Afterwards, the buffers of ranks other than the root hold partial results. */
  *reduce(channel, operation) {
    const ranks = allRanks(channel)
    const chunks = cutIntoChunks(bufferOf(operation), channel.size)
    yield* reduceToOwners(channel, operation, ranks, chunks)
    yield* fetchFromOwners(channel, ranks, chunks, [operation.peer])
  },
} satisfies Algorithms

function allRanks({ size }: Channel): number[] {
  return Array.from({ length: size }, (_, rank) => rank)
}

/**
 * Combines the data of all ranks as it arrives: output = ((r0 op r1) op r2) ... The parts of other
 * ranks are overwritten. `own` is unchanged unless it is also the output.
 *
 * @param place - position of this rank among the ranks
 * @param parts - the data of the other ranks, starting after this rank and wrapping around
 */
export function* combineInRankOrder(
  arithmetic: Arithmetic,
  place: number,
  parts: readonly Message[],
  { at: own, bytes }: Piece,
  output: number,
): Steps {
  const size = parts.length + 1
  let sum = own
  for (let member = 0; member < size; member++) {
    let part = own
    if (member !== place) {
      const message = parts[(member - place - 1 + size) % size]!
      yield* until(message)
      part = message.at
    }
    if (member === 0) {
      sum = part
      continue
    }
    // The output may be the place of this rank's data, so read the data first.
    const out = member >= place ? output : sum
    arithmetic.combine(out, sum, part, bytes)
    sum = out
  }
  arithmetic.finish(output, bytes)
}

/**
 * Combines chunk j of the buffers of all `ranks` on the rank at index j, the owner of the chunk. A
 * rank without a chunk only sends. The reduction `avg` divides by the size of the channel, even if
 * there are fewer `ranks`.
 *
 * @param output - heap offset of the owner's result. Default: the place of its own chunk
 */
export function* reduceToOwners(
  channel: Channel,
  operation: Operation,
  ranks: readonly number[],
  chunks: readonly Piece[],
  output?: number,
): Steps {
  const place = ranks.indexOf(channel.rank)
  const arithmetic = arithmeticOf(channel, operation)
  const peers = [...ranks.slice(place + 1), ...ranks.slice(0, place)]
  const cut = chunks.map((chunk) => cutIntoSegments(chunk, partBytes(peers.length)))
  const sends: Message[] = []
  const contribute = (i: number): void => {
    for (let step = 1; step < ranks.length; step++) {
      const owner = (place + step) % ranks.length
      const segment = cut[owner]?.[i]
      if (segment !== undefined) sends.push(channel.send(ranks[owner]!, segment.at, segment.bytes))
    }
  }
  const own = cut[place] ?? []
  const slots = own.length === 0 ? [] : peers.map(() => channel.scratch(own[0]!.bytes))
  const rounds = Math.max(...cut.map(({ length }) => length))
  for (let i = 0; i < AHEAD; i++) contribute(i)
  for (let i = 0; i < rounds; i++) {
    const segment = own[i]
    if (segment !== undefined) {
      const { at, bytes } = segment
      const result = output === undefined ? at : output + at - own[0]!.at
      const parts = peers.map((peer, slot) => channel.receive(peer, slots[slot]!, bytes))
      yield* combineInRankOrder(arithmetic, place, parts, segment, result)
    }
    contribute(i + AHEAD)
  }
  yield* untilAll(sends)
}

/** Copies each chunk from its owner, the rank at its index in `ranks`, to the `readers`. */
export function* fetchFromOwners(
  channel: Channel,
  ranks: readonly number[],
  chunks: readonly Piece[],
  readers = ranks,
): Steps {
  const { rank } = channel
  const place = ranks.indexOf(rank)
  const own = chunks[place]
  const started: Message[] = []
  for (let step = 1; step < ranks.length; step++) {
    const owner = (place + step) % ranks.length
    const peer = ranks[owner]!
    const theirs = chunks[owner]
    if (own !== undefined && readers.includes(peer)) {
      started.push(channel.send(peer, own.at, own.bytes))
    }
    if (theirs !== undefined && readers.includes(rank)) {
      started.push(channel.receive(peer, theirs.at, theirs.bytes))
    }
  }
  yield* untilAll(started)
}

/** Implements the collectives of a group of one rank, which only copy. */
export function* copyAlone(channel: Channel, operation: Operation): Steps {
  const { input, output } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const { bytes } = slicesOf(channel, operation)[0]!
  if (output !== input) channel.kernels.copy(output, input, bytes)
  arithmetic.finish(output, bytes)
}
