import { until, type Channel, type Steps } from './channel.ts'

/**
 * Barrier by dissemination (Hensgen, Finkel & Manber, 1988): in round k rank r tells r + 2^k and
 * hears from r - 2^k; after ceil(log2 n) rounds everybody has heard of everybody. No payload.
 */
export function* disseminationBarrier(channel: Channel): Steps {
  const { rank, size } = channel
  for (let distance = 1; distance < size; distance *= 2) {
    const heard = channel.receive((rank - distance + size) % size, 0, 0)
    yield* until(channel.send((rank + distance) % size, 0, 0))
    yield* until(heard)
  }
}
