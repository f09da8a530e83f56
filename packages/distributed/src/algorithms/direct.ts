import { bytesOf, SKIPPED, type Operation } from '../operation.ts'
import { arithmeticOf, otherRanks } from './algorithm.ts'
import { until, untilAll, type Channel, type Message, type Steps } from './channel.ts'
import { cutIntoChunks, cutIntoSegments, partBytes, slicesOf, type Piece } from './pieces.ts'

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

/** Number of blocks whose parts are sent in advance. */
const AHEAD = 3

export function* directAllReduce(channel: Channel, operation: Operation): Steps {
  const { rank, size } = channel
  const { input: base } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const peers = otherRanks(channel)
  const blocks = cutIntoSegments(
    { at: base, bytes: bytesOf(operation) },
    partBytes(AHEAD * peers.length) * size,
  ).map(({ at, bytes }) =>
    cutIntoChunks(bytes, size).map((chunk) => ({ ...chunk, at: at + chunk.at })),
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
  const { rank } = channel
  const { input, output } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const slice = bytesOf(operation)
  const peers = otherRanks(channel)
  const segments = cutIntoSegments({ at: 0, bytes: slice }, partBytes(peers.length))
  const slots = peers.map(() => channel.scratch(segments[0]!.bytes))
  const started: Message[] = []
  const contribute = (segment: Piece | undefined): void => {
    for (const peer of segment === undefined ? [] : peers) {
      started.push(channel.send(peer, input + peer * slice + segment!.at, segment!.bytes))
    }
  }

  for (const segment of segments.slice(0, AHEAD)) contribute(segment)
  for (const [i, { at, bytes }] of segments.entries()) {
    const parts = peers.map((peer, slot) => channel.receive(peer, slots[slot]!, bytes))
    let sum = input + rank * slice + at
    for (const part of parts) {
      yield* until(part)
      arithmetic.combine(output + at, sum, part.at, bytes)
      sum = output + at
    }
    arithmetic.finish(output + at, bytes)
    contribute(segments[i + AHEAD])
  }
  yield* untilAll(started)
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
