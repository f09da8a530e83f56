import {
  arithmeticOf,
  until,
  untilAll,
  type Algorithm,
  type Algorithms,
  type Channel,
  type Message,
  type Steps,
} from './channel.ts'
import { cutIntoSegments, segmentBytes, exchangedSlicesOf, slicesOf, type Slice } from './pieces.ts'

/*
 * Pairwise exchange (Thakur, Rabenseifner & Gropp, 2005): n-1 steps. In step s, rank r sends to r+s
 * and receives from r-s, so no rank receives from two ranks at once. Every slice travels once,
 * directly to its rank: (n-1)/n S bytes per rank. WINDOW steps run at the same time.
 */
const WINDOW = 4

/**
 * All-to-all, in place if input and output are the same buffer. Uneven slices are never in place,
 * because an empty buffer may start at the same offset as another buffer.
 */
const allToAll: Algorithm = function* (channel, operation) {
  const { rank, size: n, kernels } = channel
  const { input, output, table } = operation
  const { sent, coming } = exchangedSlicesOf(channel, operation)
  if (input === output && table === 0) {
    yield* swapInPlace(channel, input, sent)
    return
  }
  const receives: Message[] = []
  const sends: Message[] = []
  const own = sent[rank]!
  kernels.copy(output + coming[rank]!.at, input + own.at, own.bytes)
  for (let step = 1; step < n; step++) {
    const from = (rank - step + n) % n
    const to = (rank + step) % n
    const { at, bytes, count } = coming[from]!
    receives.push(channel.receive(from, output + at, bytes, count))
    sends.push(channel.send(to, input + sent[to]!.at, sent[to]!.bytes, sent[to]!.count))
    const earlier = step - WINDOW
    if (earlier >= 0) {
      yield* until(receives[earlier]!)
      yield* until(sends[earlier]!)
    }
  }
  yield* untilAll([...receives, ...sends])
}

export const pairwise = {
  allToAll,
  allToAllV: allToAll,

  /**
   * Reduce-scatter. In step s, rank r receives the contribution of r-s to its slice and adds it.
   * Contributions are added in the order r, r-1, ...; no partial sum is sent.
   */
  *reduceScatter(channel, operation) {
    const { rank, size: n, kernels } = channel
    const { input, output } = operation
    const arithmetic = arithmeticOf(channel, operation)
    const slices = slicesOf(channel, operation)
    const { at, bytes } = slices[rank]!
    const slots = Array.from({ length: Math.min(WINDOW, n - 1) }, () => channel.scratch(bytes))
    const post = (step: number): Message =>
      channel.receive((rank - step + n) % n, slots[step % slots.length]!, bytes)
    const begin = (step: number): Message => {
      const to = (rank + step) % n
      return channel.send(to, input + slices[to]!.at, bytes)
    }
    const steps = Array.from({ length: n - 1 }, (_, i) => i + 1)
    const receives = steps.slice(0, slots.length).map(post)
    const sends = steps.slice(0, slots.length).map(begin)
    if (output !== input + at) kernels.copy(output, input + at, bytes)
    for (const step of steps) {
      const received = receives[step - 1]!
      yield* until(received)
      arithmetic.combine(output, output, received.at, bytes)
      const following = step + slots.length
      if (following < n) {
        receives.push(post(following))
        yield* until(sends[step - 1]!)
        sends.push(begin(following))
      }
    }
    arithmetic.finish(output, bytes)
    yield* untilAll(sends)
  },
} satisfies Algorithms

/**
 * In round s, the ranks whose numbers add up to s (modulo n) swap their slices, segment by segment,
 * through one segment of scratch each. A rank that is its own partner skips the round.
 */
function* swapInPlace(channel: Channel, base: number, slices: readonly Slice[]): Steps {
  const { rank, size: n, kernels } = channel
  const largest = Math.max(...slices.map(({ bytes }) => bytes))
  const size = segmentBytes(largest)
  const scratch = channel.scratch(Math.min(size, largest))
  for (let round = 0; round < n; round++) {
    const partner = (round - rank + n) % n
    if (partner === rank) continue
    const { count } = slices[partner]!
    for (const { at, bytes } of cutIntoSegments(slices[partner]!, size)) {
      yield* untilAll([
        channel.receive(partner, scratch, bytes, count),
        channel.send(partner, base + at, bytes, count),
      ])
      kernels.copy(base + at, scratch, bytes)
    }
  }
}
