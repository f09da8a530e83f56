import { until, type Channel, type Steps } from './channel.ts'
import { SKIPPED, type Operation } from '../operation.ts'
import { dtypes } from '../dtype.ts'
import { arithmeticOf } from './algorithm.ts'
import { slicesOf } from './slices.ts'

/*
 * One message from one rank to another, and collectives of a group of one, which only copy.
 */

export function* sendMessage(channel: Channel, { input, count, dtype, peer }: Operation): Steps {
  yield* until(channel.send(peer, input, count * dtypes[dtype].bytes))
}

export function* receiveMessage(
  channel: Channel,
  { input, count, dtype, peer, table }: Operation,
): Steps {
  if (count === SKIPPED) {
    channel.skip(peer)
    return
  }
  const matched = channel.receiveMatched(peer, input, count * dtypes[dtype].bytes)
  yield* until(matched)
  if (matched.message !== undefined) yield* until(matched.message)
  if (table !== 0) channel.heap.doubles[table / 8] = matched.source
}

export function* copyAlone(channel: Channel, operation: Operation): Steps {
  const { input, output } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const { bytes } = slicesOf(channel, operation)[0]!
  if (output !== input) channel.kernels.copy(output, input, bytes)
  arithmetic.finish(output, bytes)
}
