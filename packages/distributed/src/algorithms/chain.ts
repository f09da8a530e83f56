import { bytesOf } from '../operation.ts'
import { arithmeticOf, until, untilAll, type Algorithms, type Message } from './channel.ts'
import { bufferOf, cutIntoSegments, segmentBytes } from './pieces.ts'

/*
 * Pipelined chains, for large buffers. The ranks form a line that starts at the root, and segments
 * pass through all of them. Each rank but the last sends S bytes once, with a delay of n-2
 * segments. Between two ranks, WINDOW segments are in flight.
 */
const WINDOW = 4

export const chain = {
  *broadcast(channel, operation) {
    const { rank, size } = channel
    const place = (rank - operation.peer + size) % size
    const segments = cutIntoSegments(bufferOf(operation), segmentBytes(bytesOf(operation)))
    const isFirst = place === 0
    const isLast = place === size - 1
    const post = (i: number): Message =>
      channel.receive((rank + size - 1) % size, segments[i]!.at, segments[i]!.bytes)
    const receives = isFirst ? [] : segments.slice(0, WINDOW).map((_, i) => post(i))
    const sends: Message[] = []
    for (const [i, segment] of segments.entries()) {
      if (!isFirst) {
        yield* until(receives[i]!)
        if (i + WINDOW < segments.length) receives.push(post(i + WINDOW))
      }
      if (!isLast) sends.push(channel.send((rank + 1) % size, segment.at, segment.bytes))
    }
    yield* untilAll(sends)
  },

  /**
   * Reduces along the chain towards the root. Sums are computed in scratch memory, so the buffers of
   * other ranks are unchanged.
   */
  *reduce(channel, operation) {
    const { rank, size } = channel
    const arithmetic = arithmeticOf(channel, operation)
    const place = (rank - operation.peer + size) % size
    const segmentSize = segmentBytes(bytesOf(operation))
    const segments = cutIntoSegments(bufferOf(operation), segmentSize)
    const towardsRoot = (rank + size - 1) % size
    if (place === size - 1) {
      yield* untilAll(segments.map(({ at, bytes }) => channel.send(towardsRoot, at, bytes)))
      return
    }
    const slots = Array.from({ length: WINDOW }, () => channel.scratch(segmentSize))
    const post = (i: number): Message =>
      channel.receive((rank + 1) % size, slots[i % WINDOW]!, segments[i]!.bytes)
    const receives = segments.slice(0, WINDOW).map((_, i) => post(i))
    const sends: Message[] = []
    for (const [i, segment] of segments.entries()) {
      const received = receives[i]!
      yield* until(received)
      if (place === 0) {
        arithmetic.combine(segment.at, segment.at, received.at, segment.bytes)
        arithmetic.finish(segment.at, segment.bytes)
      } else {
        arithmetic.combine(received.at, received.at, segment.at, segment.bytes)
        sends.push(channel.send(towardsRoot, received.at, segment.bytes))
      }
      if (i + WINDOW < segments.length) {
        if (sends[i] !== undefined) yield* until(sends[i])
        receives.push(post(i + WINDOW))
      }
    }
    yield* untilAll(sends)
  },
} satisfies Algorithms
