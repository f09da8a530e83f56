import { dtypes } from '../dtype.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { bytesOf, type Operation, type OperationName } from '../operation.ts'
import { otherRanks } from './channel.ts'
import { cutIntoSegments, GRAIN } from './pieces.ts'

/*
 * Collectives of ranks that share memory, for buffers that are too large for slots. Every rank exposes
 * its buffer, like a window of MPI, and the others copy from it directly. Ranks wait for each other by
 * step counters. There are no messages, and each byte is copied once.
 *
 * all-reduce: the buffer is cut into blocks, and each block into n chunks. In each block, rank r
 * adds chunk r of all ranks, in rank order. After the next block, rank r fetches the sums of the
 * other chunks, which are still cached. Each rank reads 2(n-1)/n S of S bytes. Reduce-scatter and
 * all-gather each read half of that. All ranks get the same bits.
 *
 * The other collectives exchange messages: the root of a broadcast, reduce, gather or scatter may abort
 * while other ranks read its buffer.
 */

/** The buffers of all ranks of a group in one operation. Ranks are group ranks. */
export interface Window {
  readonly rank: number
  readonly size: number
  readonly kernels: Pick<Kernels, 'combine' | 'scale' | 'copy'>
  /** Allocates engine memory until the operation ends, and returns its offset. */
  scratch(bytes: number): number
  /** Copies `bytes` bytes at `offset` of a rank's buffer to `at` in this heap. */
  read(rank: number, at: number, offset: number, bytes: number): void
  /** Tells the other ranks that this rank has completed one more step. */
  advance(): void
}

/**
 * A collective on a window. It yields the rank and the number of steps that it waits for. At the
 * end, it waits until all ranks have read all buffers, so that the buffers may change. The contents
 * of scratch memory are lost during a wait.
 */
export type WindowSteps = Generator<Awaited, void, void>

export interface Awaited {
  /** Group rank; ALL means every other rank. */
  readonly rank: number
  readonly steps: number
}

export const ALL = -1

type WindowCollective = (window: Window, operation: Operation) => WindowSteps

/** Bytes of a chunk of a block. Small, so that the scratch memory for a chunk stays cached. */
const CHUNK = 128 * 1024
/** Largest scratch memory of a collective, in bytes. */
export const WINDOW_SCRATCH = 2 * CHUNK

const collectives: Partial<Record<OperationName, WindowCollective>> = {
  allReduce: windowAllReduce,
  allReduceCoalesced: windowAllReduce,
  reduceScatter: windowReduceScatter,
  allGather: windowAllGather,
}

export function findWindowCollective(name: OperationName): WindowCollective | undefined {
  return collectives[name]
}

function* windowAllReduce(window: Window, operation: Operation): WindowSteps {
  const { rank, size } = window
  const { input } = operation
  const bytes = bytesOf(operation)
  const block = CHUNK * size
  const blocks = Math.max(1, Math.ceil(bytes / block))
  const fold = folding(window, operation, chunkBytes(Math.min(bytes, block), size))
  for (let i = 0; i <= blocks; i++) {
    if (i < blocks) {
      const left = Math.min(block, bytes - i * block)
      const chunk = chunkBytes(left, size)
      const at = i * block + rank * chunk
      fold(input + at, input + at, at, Math.min(chunk, left - rank * chunk))
      window.advance()
    }
    if (i === 0) continue
    const left = Math.min(block, bytes - (i - 1) * block)
    const chunk = chunkBytes(left, size)
    for (let step = 1; step < size; step++) {
      const peer = (rank + step) % size
      yield { rank: peer, steps: i }
      const at = (i - 1) * block + peer * chunk
      const length = Math.min(chunk, left - peer * chunk)
      if (length > 0) window.read(peer, input + at, at, length)
    }
  }
  window.advance()
  yield { rank: ALL, steps: blocks + 1 }
}

/** Returns the bytes of a chunk, in whole elements. The last chunks may be shorter. */
function chunkBytes(bytes: number, size: number): number {
  return Math.ceil(bytes / size / GRAIN) * GRAIN
}

function* windowReduceScatter(window: Window, operation: Operation): WindowSteps {
  const { input, output } = operation
  const slice = bytesOf(operation)
  const first = window.rank * slice
  const segments = cutIntoSegments({ at: 0, bytes: slice }, CHUNK)
  const fold = folding(window, operation, segments[0]!.bytes)
  for (const { at, bytes } of segments) {
    fold(output + at, input + first + at, first + at, bytes)
  }
  window.advance()
  yield { rank: ALL, steps: 1 }
}

function* windowAllGather(window: Window, operation: Operation): WindowSteps {
  const { rank } = window
  const { input, output } = operation
  const bytes = bytesOf(operation)
  for (const peer of otherRanks(window)) window.read(peer, output + peer * bytes, 0, bytes)
  window.advance()
  if (output + rank * bytes !== input) window.kernels.copy(output + rank * bytes, input, bytes)
  yield { rank: ALL, steps: 1 }
}

/**
 * Returns a function that combines the buffers of all ranks at one offset, in rank order.
 * @param most - largest number of bytes to combine at once
 */
function folding(window: Window, { dtype, reduction }: Operation, most: number) {
  const { rank: self, size } = window
  const [scratchSum, scratchPart] = [window.scratch(most), window.scratch(most)]
  /**
   * @param output - offset of the result in the heap; may equal `own`
   * @param own - offset of this rank's data in the heap
   * @param offset - offset of the data within each other rank's buffer
   */
  return (output: number, own: number, offset: number, bytes: number): void => {
    if (bytes <= 0) return
    const { kernels } = window
    const count = bytes / dtypes[dtype].bytes
    /** Returns the heap offset of a rank's data. Copies the data of another rank to `scratch`. */
    const take = (rank: number, scratch: number): number => {
      if (rank === self) return own
      window.read(rank, scratch, offset, bytes)
      return scratch
    }
    let sum = take(0, scratchSum)
    for (let peer = 1; peer < size; peer++) {
      // The result may overwrite this rank's data, so read the data first.
      const out = peer >= self ? output : scratchSum
      kernels.combine(reduction, dtype, out, sum, take(peer, scratchPart), count)
      sum = out
    }
    if (reduction === 'avg') kernels.scale(dtype, output, count, 1 / size)
  }
}
