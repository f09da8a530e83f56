import { until, type Channel } from '../engine/channel.ts'
import type { Operation } from '../engine/operation.ts'
import type { Steps } from '../engine/task.ts'
import { arithmeticOf } from './algorithm.ts'

/**
 * All-reduce by recursive doubling (Thakur, Rabenseifner & Gropp, 2005): in round k ranks whose
 * numbers differ in bit k exchange their whole buffers and add them up, so log2 n rounds of S bytes.
 * The fewest steps of all, for small buffers.
 *
 * Where n is no power of two, the first 2(n - p) ranks (p the power below n) pair up: the even one
 * gives its buffer to the odd one before, and gets the result after: two more steps.
 *
 * Both partners add the same two buffers, and float addition commutes, so all ranks end with the
 * same bits.
 */
export function* recursiveDoublingAllReduce(channel: Channel, operation: Operation): Steps {
  const { rank, size } = channel
  const { input: at, count } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const bytes = count * arithmetic.bytesPerElement
  const power = 2 ** Math.floor(Math.log2(size))
  const extra = size - power
  const isPaired = rank < 2 * extra
  if (isPaired && rank % 2 === 0) {
    const given = channel.send(rank + 1, at, bytes)
    const result = channel.receive(rank + 1, at, bytes)
    yield* until(given)
    yield* until(result)
    return
  }
  const scratch = channel.scratch(bytes)
  if (isPaired) {
    yield* until(channel.receive(rank - 1, scratch, bytes))
    arithmetic.combine(at, at, scratch, bytes)
  }
  const virtual = isPaired ? rank >> 1 : rank - extra
  for (let bit = 1; bit < power; bit <<= 1) {
    const other = virtual ^ bit
    const partner = other < extra ? 2 * other + 1 : other + extra
    const received = channel.receive(partner, scratch, bytes)
    const sent = channel.send(partner, at, bytes)
    yield* until(received)
    yield* until(sent)
    arithmetic.combine(at, at, scratch, bytes)
  }
  arithmetic.finish(at, bytes)
  if (isPaired) yield* until(channel.send(rank - 1, at, bytes))
}
