import { bytesOf } from '../operation.ts'
import { otherRanks, until, untilAll, type Algorithm, type Algorithms } from './channel.ts'

/*
 * The root exchanges a message with every other rank at once. There is one step, and no byte
 * travels twice. Suits large slices.
 *
 * gather: every rank but the root sends its slice. scatter: the root sends n-1 slices.
 */

const along = (direction: 'gather' | 'scatter'): Algorithm =>
  function* (channel, operation) {
    const { rank, kernels } = channel
    const { input, output, peer: root } = operation
    const bytes = bytesOf(operation)
    const gathers = direction === 'gather'
    if (rank !== root) {
      yield* until(
        gathers ? channel.send(root, input, bytes) : channel.receive(root, output, bytes),
      )
      return
    }
    const started = otherRanks(channel).map((peer) =>
      gathers
        ? channel.receive(peer, output + peer * bytes, bytes)
        : channel.send(peer, input + peer * bytes, bytes),
    )
    const own = rank * bytes
    const to = gathers ? output + own : output
    const from = gathers ? input : input + own
    if (to !== from) kernels.copy(to, from, bytes)
    yield* untilAll(started)
  }

export const linear = {
  gather: along('gather'),
  scatter: along('scatter'),

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
