import { bytesOf, type Operation } from '../operation.ts'
import {
  arithmeticOf,
  until,
  untilAll,
  type Algorithms,
  type Arithmetic,
  type Channel,
  type Message,
  type Steps,
} from './channel.ts'
import { bufferOf, cutIntoSegments, segmentBytes } from './pieces.ts'

/*
 * Pipelined chains, for large buffers. The ranks form a line that starts at the root, and segments
 * pass through all of them: away from the root in a broadcast, towards it in a reduce. Each rank but
 * the last sends S bytes once, with a delay of n-2 segments. Between two ranks, WINDOW segments are in
 * flight.
 */
const WINDOW = 4

export const chain = {
  broadcast: (channel, operation) => passAlong(channel, operation),

  /** Sums are computed in scratch memory, so the buffers of ranks other than the root are unchanged. */
  reduce: (channel, operation) => passAlong(channel, operation, arithmeticOf(channel, operation)),
} satisfies Algorithms

function* passAlong(channel: Channel, operation: Operation, arithmetic?: Arithmetic): Steps {
  const { rank, size } = channel
  const step = arithmetic === undefined ? 1 : size - 1
  const next = (rank + step) % size
  const previous = (rank + size - step) % size
  const isRoot = rank === operation.peer
  const isEnd = (operation.peer + size - 1) % size === rank
  const [isFirst, isLast] = arithmetic === undefined ? [isRoot, isEnd] : [isEnd, isRoot]
  const segmentSize = segmentBytes(bytesOf(operation))
  const segments = cutIntoSegments(bufferOf(operation), segmentSize)
  const hasSlots = arithmetic !== undefined && !isFirst
  const slots = hasSlots ? Array.from({ length: WINDOW }, () => channel.scratch(segmentSize)) : []
  const receives: Message[] = []
  const post = (i: number): void => {
    const segment = segments[i]
    if (isFirst || segment === undefined) return
    receives.push(channel.receive(previous, slots[i % WINDOW] ?? segment.at, segment.bytes))
  }
  for (let i = 0; i < WINDOW; i++) post(i)
  const sends: Message[] = []
  for (const [i, { at, bytes }] of segments.entries()) {
    const received = receives[i]
    if (received !== undefined) yield* until(received)
    const place = isLast ? at : (received?.at ?? at)
    if (received !== undefined) arithmetic?.combine(place, at, received.at, bytes)
    if (isLast) arithmetic?.finish(at, bytes)
    else sends.push(channel.send(next, place, bytes))
    // A slot is free only when its sum was sent.
    if (hasSlots && !isLast && i + WINDOW < segments.length) yield* until(sends[i]!)
    post(i + WINDOW)
  }
  yield* untilAll(sends)
}
