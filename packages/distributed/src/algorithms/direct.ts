import { until, type Channel } from '../engine/channel.ts'
import { SKIPPED, type Operation } from '../engine/operation.ts'
import type { Steps } from '../engine/task.ts'
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
  const turn = channel.receiveInTurn(peer, input, count * dtypes[dtype].bytes)
  yield* until(turn)
  if (turn.transfer !== undefined) yield* until(turn.transfer)
  if (table !== 0) channel.heap.doubles[table / 8] = turn.source
}

export function* copyAlone(channel: Channel, operation: Operation): Steps {
  const { input, output } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const { bytes } = slicesOf(channel, operation)[0]!
  if (output !== input) channel.kernels.copy(output, input, bytes)
  arithmetic.finish(output, bytes)
}
