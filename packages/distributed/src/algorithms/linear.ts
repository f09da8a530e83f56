import { otherRanks, until, untilAll, type Algorithm, type Algorithms } from './channel.ts'
import { slicesOf } from './pieces.ts'

/*
 * The root exchanges a message with every other rank at once. There is one step, and no byte
 * travels twice. Suits large slices, and slices of different sizes, which only the root knows.
 *
 * gather: every rank but the root sends its slice. scatter: the root sends n-1 slices.
 */

const along = (direction: 'gather' | 'scatter'): Algorithm =>
  function* (channel, operation) {
    const { rank, kernels } = channel
    const { input, output, peer: root } = operation
    const slices = slicesOf(channel, operation)
    const own = slices[rank]!
    const gathers = direction === 'gather'
    if (rank !== root) {
      yield* until(
        gathers
          ? channel.send(root, input, own.bytes, own.count)
          : channel.receive(root, output, own.bytes, own.count),
      )
      return
    }
    const started = otherRanks(channel).map((peer) => {
      const { at, bytes, count } = slices[peer]!
      return gathers
        ? channel.receive(peer, output + at, bytes, count)
        : channel.send(peer, input + at, bytes, count)
    })
    const to = gathers ? output + own.at : output
    const from = gathers ? input : input + own.at
    if (to !== from) kernels.copy(to, from, own.bytes)
    yield* untilAll(started)
  }

const gather = along('gather')
const scatter = along('scatter')

export const linear = {
  gather,
  gatherV: gather,
  scatter,
  scatterV: scatter,

  /**
   * The monitored barrier: every rank reports to rank 0, which releases all ranks once all have
   * reported. Unlike with other barriers, one rank knows which ranks are missing. It takes two empty
   * messages per rank.
   */
  *monitoredBarrier(channel) {
    const others = otherRanks(channel)
    if (channel.rank !== 0) {
      yield* untilAll([channel.receive(0, 0, 0), channel.send(0, 0, 0)])
      return
    }
    yield* untilAll(others.map((from) => channel.receive(from, 0, 0)))
    yield* untilAll(others.map((to) => channel.send(to, 0, 0)))
  },
} satisfies Algorithms
