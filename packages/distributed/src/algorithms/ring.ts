import { bytesOf } from '../operation.ts'
import {
  arithmeticOf,
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
  segmentBytes,
  slicesOf,
  type Piece,
  type Slice,
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

/** Copies rank r's `input` to slice r of every `output`. The slices may be uneven. */
const allGather: Algorithm = function* (channel, operation) {
  const { rank, kernels } = channel
  const { input, output } = operation
  const chunks = slicesOf(channel, operation).map((slice) => ({
    ...slice,
    at: output + slice.at,
  }))
  const own = chunks[rank]!
  if (own.at !== input) kernels.copy(own.at, input, own.bytes)
  yield* passAround(channel, chunks)
}

export const ring = {
  allGather,
  allGatherV: allGather,

  *allReduce(channel, operation) {
    const chunks = cutIntoChunks(bufferOf(operation), channel.size)
    yield* passAround(channel, chunks, arithmeticOf(channel, operation))
  },

  /**
   * Reduces slices around the ring. `input` [n slices] is unchanged, and rank r's slice of the result
   * goes to `output`. Partial sums are in scratch memory. To limit its size, WINDOW segments complete
   * all their steps before the next WINDOW segments start.
   */
  *reduceScatter(channel, operation) {
    const { rank, size: n } = channel
    const { input, output } = operation
    const arithmetic = arithmeticOf(channel, operation)
    const slice = bytesOf(operation)
    const next = (rank + 1) % n
    const previous = (rank + n - 1) % n
    const segments = cutIntoSegments({ at: 0, bytes: slice }, segmentBytes(slice))
    const steps = Array.from({ length: n - 1 }, (_, step) => step)
    const coming = segments.flatMap((_, first) =>
      first % WINDOW !== 0
        ? []
        : steps.flatMap((step) =>
            segments.slice(first, first + WINDOW).map((segment, row) => ({
              ...segment,
              step,
              place: input + ((rank - 2 - step + n) % n) * slice + segment.at,
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
  },
} satisfies Algorithms

/**
 * Sends this rank's chunk to the next rank and passes on what arrives, until each rank has all
 * chunks. With arithmetic, the chunks go around twice: first they are added up, then copied.
 */
function* passAround(
  channel: Channel,
  chunks: readonly (Piece & Partial<Slice>)[],
  arithmetic?: Arithmetic,
): Steps {
  const { rank, size: n } = channel
  const segment = segmentBytes(Math.max(...chunks.map(({ bytes }) => bytes)))
  const next = (rank + 1) % n
  const previous = (rank + n - 1) % n
  const reductions = arithmetic === undefined ? 0 : n - 1
  const steps = reductions + n - 1
  const coming = Array.from({ length: steps }, (_, step) => step).flatMap((step) => {
    const chunk = chunks[(rank - 1 - step + 2 * n) % n]!
    return cutIntoSegments(chunk, segment).map((piece) => ({ ...piece, step, count: chunk.count }))
  })
  const slots = Array.from({ length: reductions === 0 ? 0 : WINDOW }, () =>
    channel.scratch(segment),
  )
  const post = (i: number): Message => {
    const { at, bytes, step, count } = coming[i]!
    return channel.receive(previous, step < reductions ? slots[i % WINDOW]! : at, bytes, count)
  }

  const receives = coming.slice(0, WINDOW).map((_, i) => post(i))
  const own = chunks[rank]!
  const sends = cutIntoSegments(own, segment).map(({ at, bytes }) =>
    channel.send(next, at, bytes, own.count),
  )
  for (const [i, { at, bytes, step, count }] of coming.entries()) {
    const received = receives[i]!
    yield* until(received)
    if (arithmetic !== undefined && step < reductions) {
      arithmetic.combine(at, at, received.at, bytes)
      if (step === reductions - 1) arithmetic.finish(at, bytes)
    }
    if (step < steps - 1) sends.push(channel.send(next, at, bytes, count))
    if (i + WINDOW < coming.length) receives.push(post(i + WINDOW))
  }
  yield* untilAll(sends)
}
