import { bytesOf, SKIPPED, type Operation } from '../operation.ts'
import { arithmeticOf, otherRanks } from './algorithm.ts'
import { until, untilAll, type Channel, type Message, type Steps } from './channel.ts'
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
 * all-gather each send half of that, (n-1)/n S. One rank adds each chunk, so all ranks get the same
 * bits.
 *
 * broadcast: the root sends its S bytes to each of n-1 ranks.
 */

/** Number of segments or blocks that are sent in advance. */
const AHEAD = 3

export function* directAllReduce(channel: Channel, operation: Operation): Steps {
  const { rank, size } = channel
  const arithmetic = arithmeticOf(channel, operation)
  const peers = otherRanks(channel)
  const blockBytes = partBytes(AHEAD * peers.length) * size
  const blocks = cutIntoSegments(bufferOf(operation), blockBytes).map((block) =>
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
    for (const part of parts[i]!) {
      yield* until(part)
      arithmetic.combine(own.at, own.at, part.at, own.bytes)
    }
    arithmetic.finish(own.at, own.bytes)
    for (const peer of peers) {
      const { at, bytes } = chunks[peer]!
      started.push(channel.send(peer, own.at, own.bytes), channel.receive(peer, at, bytes))
    }
    contribute(i + AHEAD)
  }
  yield* untilAll(started)
}

/**
 * Reduces slices directly. `input` [n slices] is unchanged, and rank r's slice of the result goes
 * to `output`.
 */
export function* directReduceScatter(channel: Channel, operation: Operation): Steps {
  const { input, output } = operation
  const bytes = bytesOf(operation)
  const ranks = [...Array(channel.size).keys()]
  const slices = ranks.map((rank) => ({ at: input + rank * bytes, bytes }))
  yield* reduceToOwners(channel, operation, ranks, slices, output)
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
      let sum = at
      for (const part of parts) {
        yield* until(part)
        arithmetic.combine(result, sum, part.at, bytes)
        sum = result
      }
      arithmetic.finish(result, bytes)
    }
    contribute(i + AHEAD)
  }
  yield* untilAll(sends)
}

/** Copies rank r's `input` to slice r of every `output`. */
export function* directAllGather(channel: Channel, operation: Operation): Steps {
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
}

export function* directBroadcast(channel: Channel, operation: Operation): Steps {
  const { rank } = channel
  const { input: at, peer: root } = operation
  const bytes = bytesOf(operation)
  if (rank === root)
    yield* untilAll(otherRanks(channel).map((peer) => channel.send(peer, at, bytes)))
  else yield* until(channel.receive(root, at, bytes))
}

/** Implements sends and receives, and the collectives of a group of one rank, which only copy. */

export function* sendMessage(channel: Channel, operation: Operation): Steps {
  yield* until(channel.send(operation.peer, operation.input, bytesOf(operation)))
}

export function* receiveMessage(channel: Channel, operation: Operation): Steps {
  const { input, count, peer, table } = operation
  if (count === SKIPPED) {
    channel.skip(peer)
    return
  }
  const matched = channel.receiveMatched(peer, input, bytesOf(operation))
  yield* until(matched)
  if (matched.message !== undefined) yield* until(matched.message)
  if (table !== 0) channel.heap.doubles[table / 8] = matched.source
}

export function* copyAlone(channel: Channel, operation: Operation): Steps {
  const { input, output } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const { bytes } = slicesOf(channel, operation)[0]!
  if (output !== input) channel.kernels.copy(output, input, bytes)
  arithmetic.finish(output, bytes)
}
