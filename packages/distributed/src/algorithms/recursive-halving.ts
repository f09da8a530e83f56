import { until, type Channel, type Steps } from './channel.ts'
import type { Operation } from '../operation.ts'
import { arithmeticOf } from './algorithm.ts'

/**
 * Reduce-scatter by halving (Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce
 * Algorithms", 2024): rank r turns its slices so that number i is for r + i. In each step it keeps
 * the first half of its numbers, sends the others half that many ranks on, and adds up what comes.
 * At the end number 0 is complete. ceil(log2 n) steps and (n-1)/n S bytes a rank for any n, for
 * small buffers: the partial sums live in scratch.
 */
export function* recursiveHalvingReduceScatter(channel: Channel, operation: Operation): Steps {
  const { rank, size: n, kernels } = channel
  const { input, output, count } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const slice = count * arithmetic.bytesPerElement
  const sums = channel.scratch(n * slice)
  const arrived = channel.scratch(Math.floor(n / 2) * slice)
  kernels.copy(sums, input + rank * slice, (n - rank) * slice)
  kernels.copy(sums + (n - rank) * slice, input, rank * slice)
  for (let held = n; held > 1;) {
    const kept = Math.ceil(held / 2)
    const bytes = (held - kept) * slice
    const received = channel.receive((rank - kept + n) % n, arrived, bytes)
    const sent = channel.send((rank + kept) % n, sums + kept * slice, bytes)
    yield* until(received)
    arithmetic.combine(sums, sums, arrived, bytes)
    yield* until(sent)
    held = kept
  }
  kernels.copy(output, sums, slice)
  arithmetic.finish(output, slice)
}
