import { until, untilAll, type Channel, type Message, type Steps } from './channel.ts'
import { bytesOf, type Operation } from '../operation.ts'
import { arithmeticOf } from './algorithm.ts'
import {
  bufferOf,
  cutIntoChunks,
  cutIntoSegments,
  segmentBytes,
  slicesOf,
  type Piece,
} from './pieces.ts'

/*
 * The ring (Patarasuk & Yuan, 2009). Rank r only sends to r+1 and receives from r-1. The buffer is
 * cut into n chunks, one per rank. Each chunk is cut into segments, with WINDOW of them in flight.
 *
 * reduce-scatter: n-1 steps. In step s, rank r receives chunk r-s-1, adds its own contribution, and
 * passes the sum on in step s+1. all-gather: n-1 steps. In each step, a rank passes on a finished
 * chunk. all-reduce is a reduce-scatter followed by an all-gather, without a pause: a segment is
 * passed on as soon as it is added.
 *
 * Sent per rank, of S bytes: all-reduce 2(n-1)/n S in 2(n-1) steps; the halves (n-1)/n S each.
 */

/** Number of segments with posted receives. */
const WINDOW = 4

/** An arriving segment, in a list that is ordered by arrival. */
interface Arrival extends Piece {
  readonly step: number
}

/** Lists the segments of `chunks` that arrive. Their offsets start where those of `chunks` do. */
function arrivals(
  channel: Channel,
  chunks: readonly Piece[],
  size: number,
  order: number[],
): Arrival[] {
  const { rank, size: n } = channel
  return order.flatMap((offset, step) => {
    const chunk = chunks[(((rank + offset) % n) + n) % n]!
    return cutIntoSegments(chunk, size).map((segment) => ({ ...segment, step }))
  })
}

/**
 * Returns the numbers of the chunks that arrive in `steps` steps: `first`, `first` - 1, and so on.
 */
function downFrom(first: number, steps: number): number[] {
  return Array.from({ length: steps }, (_, step) => first - step)
}

export function* ringAllReduce(channel: Channel, operation: Operation): Steps {
  const { rank, size: n } = channel
  const arithmetic = arithmeticOf(channel, operation)
  const chunks = cutIntoChunks(bufferOf(operation), n)
  const segment = segmentBytes(chunks[0]!.bytes)
  const next = (rank + 1) % n
  const previous = (rank + n - 1) % n
  const coming = arrivals(channel, chunks, segment, downFrom(-1, 2 * (n - 1)))
  const slots = Array.from({ length: WINDOW }, () => channel.scratch(segment))
  const reduces = ({ step }: Arrival): boolean => step < n - 1
  const post = (i: number): Message => {
    const arrival = coming[i]!
    const place = reduces(arrival) ? slots[i % WINDOW]! : arrival.at
    return channel.receive(previous, place, arrival.bytes)
  }

  const receives = coming.slice(0, WINDOW).map((_, i) => post(i))
  const sends = cutIntoSegments(chunks[rank]!, segment).map(({ at, bytes }) =>
    channel.send(next, at, bytes),
  )
  for (const [i, arrival] of coming.entries()) {
    const { at, bytes, step } = arrival
    const received = receives[i]!
    yield* until(received)
    if (reduces(arrival)) {
      arithmetic.combine(at, at, received.at, bytes)
      if (step === n - 2) arithmetic.finish(at, bytes)
    }
    if (step < 2 * n - 3) sends.push(channel.send(next, at, bytes))
    if (i + WINDOW < coming.length) receives.push(post(i + WINDOW))
  }
  yield* untilAll(sends)
}

/**
 * Reduces slices around the ring. `input` [n slices] is unchanged, and rank r's slice of the result
 * goes to `output`. Partial sums are in scratch memory. To limit its size, WINDOW segments complete
 * all their steps before the next WINDOW segments start.
 */
export function* ringReduceScatter(channel: Channel, operation: Operation): Steps {
  const { rank, size: n } = channel
  const { input, output } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const slice = bytesOf(operation)
  const next = (rank + 1) % n
  const previous = (rank + n - 1) % n
  const segments = cutIntoSegments({ at: 0, bytes: slice }, segmentBytes(slice))
  const coming = segments.flatMap((_, first) =>
    first % WINDOW !== 0
      ? []
      : downFrom(-2, n - 1).flatMap((offset, step) =>
          segments.slice(first, first + WINDOW).map((segment, row) => ({
            ...segment,
            step,
            place: input + ((rank + offset + n) % n) * slice + segment.at,
            following: segments[first + WINDOW + row],
          })),
        ),
  )
  const slots = Array.from({ length: 2 * WINDOW }, () => channel.scratch(segments[0]!.bytes))
  const post = (i: number): Message =>
    channel.receive(previous, slots[i % slots.length]!, coming[i]!.bytes)
  const begin = ({ at, bytes }: Piece): Message =>
    channel.send(next, input + previous * slice + at, bytes)

  const receives = coming.slice(0, WINDOW).map((_, i) => post(i))
  const sends = segments.slice(0, WINDOW).map(begin)
  const passedOn: (Message | undefined)[] = []
  for (const [i, { at, bytes, step, place, following }] of coming.entries()) {
    const received = receives[i]!
    yield* until(received)
    if (step < n - 2) {
      arithmetic.combine(received.at, received.at, place, bytes)
      passedOn[i] = channel.send(next, received.at, bytes)
    } else {
      arithmetic.combine(output + at, received.at, place, bytes)
      arithmetic.finish(output + at, bytes)
      if (following !== undefined) sends.push(begin(following))
    }
    if (i + WINDOW < coming.length) {
      // First wait until the segment that used this scratch memory was sent.
      const leaving = passedOn[i - WINDOW]
      if (leaving !== undefined) yield* until(leaving)
      receives.push(post(i + WINDOW))
    }
  }
  for (const sent of [...sends, ...passedOn]) if (sent !== undefined) yield* until(sent)
}

/** Copies rank r's `input` to slice r of every `output`. The slices may be uneven. */
export function* ringAllGather(channel: Channel, operation: Operation): Steps {
  const { rank, size: n, kernels } = channel
  const { input, output, name } = operation
  const chunks = slicesOf(channel, operation)
  const own = chunks[rank]!
  if (output + own.at !== input) kernels.copy(output + own.at, input, own.bytes)
  const segment = segmentBytes(Math.max(...chunks.map(({ bytes }) => bytes)))
  const countOf = (step: number): number | undefined =>
    name === 'allGatherV' ? chunks[(rank - step + 2 * n) % n]!.count : undefined
  const next = (rank + 1) % n
  const previous = (rank + n - 1) % n
  const coming = arrivals(channel, chunks, segment, downFrom(-1, n - 1))
  const post = (i: number): Message => {
    const { at, bytes, step } = coming[i]!
    return channel.receive(previous, output + at, bytes, countOf(step + 1))
  }

  const receives = coming.slice(0, WINDOW).map((_, i) => post(i))
  const sends = cutIntoSegments(own, segment).map(({ at, bytes }) =>
    channel.send(next, output + at, bytes, countOf(0)),
  )
  for (const [i, { at, bytes, step }] of coming.entries()) {
    yield* until(receives[i]!)
    if (step < n - 2) sends.push(channel.send(next, output + at, bytes, countOf(step + 1)))
    if (i + WINDOW < coming.length) receives.push(post(i + WINDOW))
  }
  yield* untilAll(sends)
}
