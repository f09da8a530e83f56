import { bytesOf } from '../operation.ts'
import { rotate, untilAll, type Algorithms } from './channel.ts'

/*
 * Bruck's all-gather (Bruck, Ho, Kipnis, Upfal & Weathersby, 1997), for small slices: ceil(log2 n)
 * steps for any n, with extra copies instead of extra messages.
 */

export const bruck = {
  /**
   * Rank r collects the slices of r, r+1, ... in this order. In step k, rank r sends all
   * slices that it has to r - 2^k, except those that the receiver already has. It receives as many
   * from r + 2^k. Each rank sends n-1 slices in all.
   */
  *allGather(channel, operation) {
    const { rank, size: n, kernels } = channel
    const { input, output } = operation
    const slice = bytesOf(operation)
    const held = channel.scratch(n * slice)
    kernels.copy(held, input, slice)
    for (let distance = 1; distance < n; distance *= 2) {
      const bytes = Math.min(distance, n - distance) * slice
      yield* untilAll([
        channel.receive((rank + distance) % n, held + distance * slice, bytes),
        channel.send((rank - distance + n) % n, held, bytes),
      ])
    }
    rotate(channel, output, held, slice, n, n - rank)
  },
} satisfies Algorithms

export const dissemination = {
  /**
   * Dissemination barrier (Hensgen, Finkel & Manber, 1988). In round k, rank r sends an empty message
   * to r + 2^k and receives one from r - 2^k. After ceil(log2 n) rounds, every rank knows that all
   * others have arrived.
   */
  *barrier(channel) {
    const { rank, size } = channel
    for (let distance = 1; distance < size; distance *= 2) {
      yield* untilAll([
        channel.receive((rank - distance + size) % size, 0, 0),
        channel.send((rank + distance) % size, 0, 0),
      ])
    }
  },
} satisfies Algorithms
