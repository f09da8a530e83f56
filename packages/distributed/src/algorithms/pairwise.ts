import { until, untilAll, type Algorithm, type Algorithms, type Message } from './channel.ts'
import { slicesOf } from './pieces.ts'

/*
 * Pairwise exchange (Thakur, Rabenseifner & Gropp, 2005): n-1 steps. In step s, rank r sends to r+s
 * and receives from r-s, so no rank receives from two ranks at once. Every slice travels once,
 * directly to its rank: (n-1)/n S bytes per rank. WINDOW steps run at the same time.
 */
const WINDOW = 4

const allToAll: Algorithm = function* (channel, operation) {
  const { rank, size: n, kernels } = channel
  const { input, output } = operation
  const sent = slicesOf(channel, operation)
  const coming = slicesOf(channel, operation, n)
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

export const pairwise = { allToAll, allToAllV: allToAll } satisfies Algorithms
