import { until, untilAll, type Channel, type Message, type Steps } from './channel.ts'
import type { Operation } from '../operation.ts'
import { dtypes } from '../dtype.ts'
import { arithmeticOf } from './algorithm.ts'

/*
 * Binomial trees: log2 n rounds of the whole buffer, for small ones. Ranks are numbered from the
 * root (root = 0). The parent of v is v without its lowest set bit; its children are v + 2^k for
 * all 2^k below that bit.
 */

export function* binomialBroadcast(channel: Channel, operation: Operation): Steps {
  const { rank, size } = channel
  const { input: at, count, peer: root, dtype } = operation
  const bytes = count * dtypes[dtype].bytes
  const virtual = (rank - root + size) % size
  const lowest = virtual === 0 ? 2 ** Math.ceil(Math.log2(size)) : virtual & -virtual
  if (virtual !== 0) {
    yield* until(channel.receive((virtual - lowest + root) % size, at, bytes))
  }
  const sends: Message[] = []
  for (let bit = lowest >> 1; bit > 0; bit >>= 1) {
    if (virtual + bit < size) sends.push(channel.send((virtual + bit + root) % size, at, bytes))
  }
  yield* untilAll(sends)
}

/** The same tree upwards. The buffers of other ranks than the root hold partial results after. */
export function* binomialReduce(channel: Channel, operation: Operation): Steps {
  const { rank, size } = channel
  const { input: at, count, peer: root } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const bytes = count * arithmetic.bytesPerElement
  const virtual = (rank - root + size) % size
  const scratch = channel.scratch(bytes)
  for (let bit = 1; bit < size; bit <<= 1) {
    if ((virtual & bit) !== 0) {
      yield* until(channel.send((virtual - bit + root) % size, at, bytes))
      return
    }
    if (virtual + bit < size) {
      yield* until(channel.receive((virtual + bit + root) % size, scratch, bytes))
      arithmetic.combine(at, at, scratch, bytes)
    }
  }
  arithmetic.finish(at, bytes)
}
