import { arithmeticOf } from '../algorithms/channel.ts'
import { slicesOf, type Slice } from '../algorithms/pieces.ts'
import { ANY_SOURCE, bytesOf, SKIPPED } from '../operation.ts'
import type { RunningOperation, TransportCollectives } from '../transports/transport.ts'

/** Bytes that a reduction copies to scratch memory at once. */
const PART = 64 * 1024

/**
 * Completes every operation of a rank at once, without other ranks, as `InitOptions.transport`
 * documents for `fake`.
 */
export const fakePeers: TransportCollectives = {
  /** Accepts every operation, unless its group has one rank. In that case, the engine only copies. */
  take: (operation, { ranks }) =>
    ranks.length === 1 ? undefined : { ...operation, algorithm: 'flat' },
  run: (running) => ({
    next: () => {
      answer(running)
      return { done: true, value: undefined }
    },
  }),
  progress: () => false,
}

function answer(running: RunningOperation): void {
  const { rank, size, kernels, heap, operation } = running
  const { name, input, output, peer, count, table } = operation
  const bytes = bytesOf(operation)
  const slices = slicesOf(running, operation)
  const own = slices[rank]!
  const isRoot = rank === peer
  switch (name) {
    case 'allReduce':
    case 'allReduceCoalesced':
      reduce(running, output, input, bytes)
      break
    case 'reduce':
      if (isRoot) reduce(running, output, input, bytes)
      break
    case 'reduceScatter':
      reduce(running, output, input + own.at, bytes)
      break
    case 'allGather':
    case 'allGatherV':
      repeat(running, slices, input, own.bytes)
      break
    case 'gather':
      if (isRoot) repeat(running, slices, input, own.bytes)
      break
    case 'scatter':
      if (isRoot) kernels.copy(output, input + own.at, own.bytes)
      else heap.bytes.fill(0, output, output + own.bytes)
      break
    case 'allToAll':
    case 'allToAllV':
      repeat(running, slicesOf(running, operation, size), input + own.at, own.bytes)
      break
    case 'recv':
      if (count !== SKIPPED) heap.bytes.fill(0, output, output + bytes)
      if (table !== 0) heap.doubles[table / 8] = peer === ANY_SOURCE ? (rank + 1) % size : peer
      break
    case 'send':
    case 'broadcast':
    case 'barrier':
    case 'monitoredBarrier':
      break
  }
}

/** Combines a buffer with itself, once for each other rank. */
function reduce(running: RunningOperation, to: number, from: number, bytes: number): void {
  const { size, kernels, operation } = running
  const arithmetic = arithmeticOf(running, operation)
  const own = running.scratch(Math.min(PART, bytes))
  for (let done = 0; done < bytes; done += PART) {
    const part = Math.min(PART, bytes - done)
    kernels.copy(own, from + done, part)
    arithmetic.combine(to + done, own, own, part)
    for (let peer = 2; peer < size; peer++) arithmetic.combine(to + done, to + done, own, part)
  }
  arithmetic.finish(to, bytes)
}

/** Copies `bytes` bytes from `from` to each slice of the output. Longer slices end with zeros. */
function repeat(
  { heap, kernels, operation }: RunningOperation,
  slices: readonly Slice[],
  from: number,
  bytes: number,
): void {
  for (const slice of slices) {
    const at = operation.output + slice.at
    const copied = Math.min(bytes, slice.bytes)
    kernels.copy(at, from, copied)
    heap.bytes.fill(0, at + copied, at + slice.bytes)
  }
}
