import { bytesOf, SKIPPED, type Operation } from '../operation.ts'
import {
  arithmeticOf,
  otherRanks,
  until,
  untilAll,
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
 * all-reduce: the buffer is cut into blocks, and each block into n chunks. In each block, rank r
 * adds chunk r of all ranks, then fetches the sums of the other chunks while the block is still
 * cached. Sent per rank, of S bytes: 2(n-1)/n S in 2(n-1) messages per block. Reduce-scatter and
 * all-gather each send half of that, (n-1)/n S. In a reduce, each rank sends (n-1)/n S, then every
 * rank but the root sends its sums of S/n to the root.
 *
 * broadcast: the root sends its S bytes to each of n-1 ranks.
 *
 * Reductions combine in rank order, ((r0 + r1) + r2) + ..., so that the result does not depend on the
 * transport or the topology. `deterministic` uses them.
 */

/** Number of segments or blocks that are sent and received in advance. */
const AHEAD = 2

export const direct = {
  allReduce: (channel, operation) => reduceBlocks(channel, operation, () => true),

  /** Afterwards, the buffers of ranks other than the root hold partial results. */
  reduce: (channel, operation) =>
    reduceBlocks(channel, operation, (rank) => rank === operation.peer),

  /** `input` [n slices] is unchanged, and rank r's slice of the result goes to `output`. */
  reduceScatter: (channel, operation) => {
    const { input, output } = operation
    const bytes = bytesOf(operation)
    const ranks = Array.from({ length: channel.size }, (_, rank) => rank)
    const slices = ranks.map((rank) => ({ at: input + rank * bytes, bytes }))
    return reduceToOwners(channel, operation, ranks, slices, output)
  },

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

/**
 * Combines this rank's data with the data of the other ranks in rank order: output =
 * ((r0 op r1) op r2) ... The parts of other ranks are overwritten. `own` is unchanged unless it is
 * also the output.
 *
 * @param parts - the data of the other ranks, starting after this rank and wrapping around
 * @param place - position of this rank among the ranks
 */
function* combineInRankOrder(
  arithmetic: Arithmetic,
  parts: readonly Message[],
  { at: own, bytes }: Piece,
  output: number,
  place: number,
): Steps {
  yield* untilAll(parts)
  const size = parts.length + 1
  const partOf = (member: number): number =>
    member === place ? own : parts[(member - place - 1 + size) % size]!.at
  let sum = partOf(0)
  for (let member = 1; member < size; member++) {
    // The output may overlap this rank's data, so read the data first.
    const out = member >= place ? output : sum
    arithmetic.combine(out, sum, partOf(member), bytes)
    sum = out
  }
  arithmetic.finish(output, bytes)
}

/** Combines the buffers of all ranks, block by block. Only ranks with `isReader` get the result. */
function* reduceBlocks(
  channel: Channel,
  operation: Operation,
  isReader: (rank: number) => boolean,
): Steps {
  const { rank, size } = channel
  const arithmetic = arithmeticOf(channel, operation)
  const peers = otherRanks(channel)
  const chunkBytes = partBytes(AHEAD * peers.length)
  const blocks = cutIntoSegments(bufferOf(operation), chunkBytes * size).map((block) =>
    cutIntoChunks(block, size),
  )
  const slots = blocks
    .slice(0, AHEAD)
    .map(() => peers.map(() => channel.scratch(blocks[0]![0]!.bytes)))
  const started: Message[] = []
  const parts: Message[][] = []
  // All ranks must post their messages in this order: after the sums of block i, the contributions
  // to block i + AHEAD.
  const contribute = (i: number): void => {
    const chunks = blocks[i]
    if (chunks === undefined) return
    for (const peer of peers) {
      const { at, bytes } = chunks[peer]!
      started.push(channel.send(peer, at, bytes))
    }
    const places = slots[i % AHEAD]!
    const { bytes } = chunks[rank]!
    parts.push(peers.map((peer, slot) => channel.receive(peer, places[slot]!, bytes)))
  }

  for (let i = 0; i < AHEAD; i++) contribute(i)
  for (const [i, chunks] of blocks.entries()) {
    const own = chunks[rank]!
    yield* combineInRankOrder(arithmetic, parts[i]!, own, own.at, rank)
    for (const peer of peers) {
      const { at, bytes } = chunks[peer]!
      if (isReader(peer)) started.push(channel.send(peer, own.at, own.bytes))
      if (isReader(rank)) started.push(channel.receive(peer, at, bytes))
    }
    contribute(i + AHEAD)
  }
  yield* untilAll(started)
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
  const cut = chunks.map((chunk) => cutIntoSegments(chunk, partBytes(AHEAD * peers.length)))
  const sends: Message[] = []
  const contribute = (i: number): void => {
    for (let step = 1; step < ranks.length; step++) {
      const owner = (place + step) % ranks.length
      const segment = cut[owner]?.[i]
      if (segment !== undefined) sends.push(channel.send(ranks[owner]!, segment.at, segment.bytes))
    }
  }
  const own = cut[place] ?? []
  const slots = own.slice(0, AHEAD).map(() => peers.map(() => channel.scratch(own[0]!.bytes)))
  const parts: Message[][] = []
  const post = (i: number): void => {
    const segment = own[i]
    if (segment === undefined) return
    const places = slots[i % AHEAD]!
    parts.push(peers.map((peer, slot) => channel.receive(peer, places[slot]!, segment.bytes)))
  }
  const rounds = Math.max(...cut.map(({ length }) => length))
  for (let i = 0; i < AHEAD; i++) {
    contribute(i)
    post(i)
  }
  for (let i = 0; i < rounds; i++) {
    const segment = own[i]
    if (segment !== undefined) {
      const result = output === undefined ? segment.at : output + segment.at - own[0]!.at
      yield* combineInRankOrder(arithmetic, parts[i]!, segment, result, place)
    }
    contribute(i + AHEAD)
    post(i + AHEAD)
  }
  yield* untilAll(sends)
}

/** Implements the collectives of a group of one rank, which only copy. */
export function* copyAlone(channel: Channel, operation: Operation): Steps {
  const { input, output } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const { bytes } = slicesOf(channel, operation)[0]!
  if (output !== input) channel.kernels.copy(output, input, bytes)
  arithmetic.finish(output, bytes)
}
