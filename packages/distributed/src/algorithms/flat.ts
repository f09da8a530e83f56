import type { Channel } from '../engine/channel.ts'
import type { Operation, OperationName } from '../engine/operation.ts'
import type { Steps } from '../engine/task.ts'
import { dtypes } from '../dtype.ts'
import { arithmeticOf, type Algorithm } from './algorithm.ts'
import { premultiplied } from './premultiplied.ts'

/*
 * Flat collectives, for small buffers of ranks that share memory (Graham & Shipman, "MPI support for
 * multi-core architectures: optimized shared memory collectives", 2008): every rank lays its buffer
 * out where all others read it, and takes what it needs, in one step and without messages. Reductions
 * combine in the order of the ranks, so all ranks get the same bits, whatever comes first.
 */

/** One turn of the ranks of a group on their boards. */
export interface Round {
  /** Shows `bytes` bytes at `at` to the others; every rank does it once, if only to say it is there. */
  layOut(at: number, bytes: number): Steps
  /** Waits until these ranks of the group have laid theirs out. */
  arrivalOf(ranks: readonly number[]): Steps
  /** Offset of what a rank has laid out. It must not be written to. */
  slotOf(rank: number): number
}

interface FlatCollective {
  /** Bytes that a rank lays out at most. */
  readonly bytes: (slice: number, size: number) => number
  readonly run: (channel: Channel, operation: Operation, round: Round) => Steps
}

const whole = (bytes: number): number => bytes
const allSlices = (slice: number, size: number): number => slice * size

const collectives: Partial<Record<OperationName, FlatCollective>> = {
  barrier: { bytes: () => 0, run: barrier },
  broadcast: { bytes: whole, run: broadcast },
  reduce: { bytes: whole, run: reduce },
  allReduce: { bytes: whole, run: allReduce },
  allReduceCoalesced: { bytes: whole, run: allReduce },
  reduceScatter: { bytes: allSlices, run: reduceScatter },
  allGather: { bytes: whole, run: allGather },
  allToAll: { bytes: allSlices, run: allToAll },
  gather: { bytes: whole, run: gather },
  scatter: { bytes: allSlices, run: scatter },
}

/** Bytes that a rank lays out for an operation; undefined when there is no flat one. */
export function flatBytes({ name, count, dtype }: Operation, size: number): number | undefined {
  return collectives[name]?.bytes(count * dtypes[dtype].bytes, size)
}

export function flatAlgorithm({ name, reduction }: Operation, round: Round): Algorithm {
  const { run } = collectives[name]!
  const algorithm: Algorithm = (channel, operation) => run(channel, operation, round)
  return reduction === 'premulSum' ? premultiplied(algorithm) : algorithm
}

function everybody({ size }: Channel): number[] {
  return Array.from({ length: size }, (_, rank) => rank)
}

/** output = ((r0 + r1) + r2) + ... of what is at `offset` in every slot. */
function fold(
  channel: Channel,
  operation: Operation,
  round: Round,
  { output, offset, bytes }: { output: number; offset: number; bytes: number },
): void {
  const arithmetic = arithmeticOf(channel, operation)
  arithmetic.combine(output, round.slotOf(0) + offset, round.slotOf(1) + offset, bytes)
  for (let rank = 2; rank < channel.size; rank++) {
    arithmetic.combine(output, output, round.slotOf(rank) + offset, bytes)
  }
  arithmetic.finish(output, bytes)
}

function* barrier(channel: Channel, _operation: Operation, round: Round): Steps {
  yield* round.layOut(0, 0)
  yield* round.arrivalOf(everybody(channel))
}

function* allReduce(channel: Channel, operation: Operation, round: Round): Steps {
  const { input, count, dtype } = operation
  const bytes = count * dtypes[dtype].bytes
  yield* round.layOut(input, bytes)
  yield* round.arrivalOf(everybody(channel))
  fold(channel, operation, round, { output: input, offset: 0, bytes })
}

function* reduce(channel: Channel, operation: Operation, round: Round): Steps {
  const { input, count, dtype, peer: root } = operation
  const bytes = count * dtypes[dtype].bytes
  yield* round.layOut(input, bytes)
  if (channel.rank !== root) return
  yield* round.arrivalOf(everybody(channel))
  fold(channel, operation, round, { output: input, offset: 0, bytes })
}

function* broadcast(channel: Channel, operation: Operation, round: Round): Steps {
  const { input, count, dtype, peer: root } = operation
  const bytes = count * dtypes[dtype].bytes
  if (channel.rank === root) {
    yield* round.layOut(input, bytes)
    return
  }
  yield* round.layOut(0, 0)
  yield* round.arrivalOf([root])
  channel.kernels.copy(input, round.slotOf(root), bytes)
}

function* reduceScatter(channel: Channel, operation: Operation, round: Round): Steps {
  const { input, output, count, dtype } = operation
  const bytes = count * dtypes[dtype].bytes
  yield* round.layOut(input, bytes * channel.size)
  yield* round.arrivalOf(everybody(channel))
  fold(channel, operation, round, { output, offset: bytes * channel.rank, bytes })
}

function* allGather(channel: Channel, operation: Operation, round: Round): Steps {
  const { input, output, count, dtype } = operation
  const bytes = count * dtypes[dtype].bytes
  yield* round.layOut(input, bytes)
  yield* round.arrivalOf(everybody(channel))
  collect(channel, round, output, bytes)
}

function* gather(channel: Channel, operation: Operation, round: Round): Steps {
  const { input, output, count, dtype, peer: root } = operation
  const bytes = count * dtypes[dtype].bytes
  yield* round.layOut(input, bytes)
  if (channel.rank !== root) return
  yield* round.arrivalOf(everybody(channel))
  collect(channel, round, output, bytes)
}

function collect({ size, kernels }: Channel, round: Round, output: number, bytes: number): void {
  for (let rank = 0; rank < size; rank++) {
    kernels.copy(output + rank * bytes, round.slotOf(rank), bytes)
  }
}

function* scatter(channel: Channel, operation: Operation, round: Round): Steps {
  const { rank, size, kernels } = channel
  const { input, output, count, dtype, peer: root } = operation
  const bytes = count * dtypes[dtype].bytes
  if (rank === root) yield* round.layOut(input, bytes * size)
  else yield* round.layOut(0, 0)
  yield* round.arrivalOf([root])
  kernels.copy(output, round.slotOf(root) + rank * bytes, bytes)
}

function* allToAll(channel: Channel, operation: Operation, round: Round): Steps {
  const { rank, size, kernels } = channel
  const { input, output, count, dtype } = operation
  const bytes = count * dtypes[dtype].bytes
  yield* round.layOut(input, bytes * size)
  yield* round.arrivalOf(everybody(channel))
  for (let peer = 0; peer < size; peer++) {
    kernels.copy(output + peer * bytes, round.slotOf(peer) + rank * bytes, bytes)
  }
}
