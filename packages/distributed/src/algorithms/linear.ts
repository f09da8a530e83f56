import { until, untilAll, type Channel, type Steps } from './channel.ts'
import { bytesOf, type Operation } from '../operation.ts'
import { arithmeticOf, foldInRankOrder, otherRanks } from './algorithm.ts'
import { slicesOf } from './pieces.ts'

/*
 * The root exchanges a message with every other rank at once. There is one step, and no byte
 * travels twice. Suits large slices, and slices of different sizes, which only the root knows.
 *
 * gather: every rank but the root sends its slice. scatter: the root sends n-1 slices.
 */

export function* linearGather(channel: Channel, operation: Operation): Steps {
  const { rank, kernels } = channel
  const { input, output, peer: root } = operation
  const slices = slicesOf(channel, operation)
  const own = slices[rank]!
  if (rank !== root) {
    yield* until(channel.send(root, input, own.bytes, own.count))
    return
  }
  const receives = otherRanks(channel).map((from) => {
    const { at, bytes, count } = slices[from]!
    return channel.receive(from, output + at, bytes, count)
  })
  if (input !== output + own.at) kernels.copy(output + own.at, input, own.bytes)
  yield* untilAll(receives)
}

export function* linearScatter(channel: Channel, operation: Operation): Steps {
  const { rank, kernels } = channel
  const { input, output, peer: root } = operation
  const slices = slicesOf(channel, operation)
  const own = slices[rank]!
  if (rank !== root) {
    yield* until(channel.receive(root, output, own.bytes, own.count))
    return
  }
  const sends = otherRanks(channel).map((to) => {
    const { at, bytes, count } = slices[to]!
    return channel.send(to, input + at, bytes, count)
  })
  if (output !== input + own.at) kernels.copy(output, input + own.at, own.bytes)
  yield* untilAll(sends)
}

/**
 * The monitored barrier: every rank reports to rank 0, which releases all ranks once all have
 * reported. Unlike with other barriers, one rank knows which ranks are missing. It takes two empty
 * messages per rank.
 */
export function* linearBarrier(channel: Channel): Steps {
  const others = otherRanks(channel)
  if (channel.rank !== 0) {
    yield* untilAll([channel.receive(0, 0, 0), channel.send(0, 0, 0)])
    return
  }
  yield* untilAll(others.map((from) => channel.receive(from, 0, 0)))
  yield* untilAll(others.map((to) => channel.send(to, 0, 0)))
}

/**
 * All-reduce in one step. Every rank sends its whole buffer to every other rank, which is (n-1) S
 * bytes. It then adds all buffers in rank order, so that all ranks get the same bits. The latency
 * is the lowest, which suits very small buffers of ranks that share memory.
 */
export function* linearAllReduce(channel: Channel, operation: Operation): Steps {
  const { rank, size } = channel
  const { input: at } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const bytes = bytesOf(operation)
  const places = Array.from({ length: size }, (_, peer) =>
    peer === rank ? at : channel.scratch(bytes),
  )
  yield* untilAll(
    otherRanks(channel).flatMap((peer) => [
      channel.send(peer, at, bytes),
      channel.receive(peer, places[peer]!, bytes),
    ]),
  )
  foldInRankOrder(arithmetic, channel, places, at, bytes)
  arithmetic.finish(at, bytes)
}
