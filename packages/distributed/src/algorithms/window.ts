import { dtypes } from '../dtype.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Operation, OperationName } from '../operation.ts'
import { otherRanks } from './algorithm.ts'
import { cutIntoSegments, GRAIN } from './pieces.ts'

/*
 * Collectives of ranks that share memory, for buffers that are too large for slots: every rank says
 * where its buffer is, as an MPI program does that opens a window of its memory, and the others copy
 * what they need straight from there. Ranks wait for each other by counting their steps; there is no
 * message, and each byte is copied once.
 *
 * all-reduce: the buffer is cut into blocks, a block into n chunks. Of each block, rank r adds up
 * chunk r of all ranks, in the order of the ranks; one block later it fetches the sums of the other
 * chunks, which are still in the caches. Read per rank, of S bytes: 2(n-1)/n S; reduce-scatter and
 * all-gather are one half each, (n-1)/n S. All ranks get the same bits.
 *
 * An all-to-all may be in place on some ranks, and the root of a broadcast, reduce, gather or scatter
 * may give up while others read its buffer. So these exchange messages.
 */

/** The buffers of all ranks of a group in one operation. Ranks are those of the group. */
export interface Window {
  readonly rank: number
  readonly size: number
  readonly kernels: Pick<Kernels, 'combine' | 'scale' | 'copy'>
  /** Offset of engine memory that is released when the operation ends. */
  scratch(bytes: number): number
  /** Copies `bytes` bytes at `offset` of a rank's buffer to `at` in this heap. */
  read(rank: number, at: number, offset: number, bytes: number): void
  /** Tells the others that this rank has done one more step. */
  advance(): void
}

/**
 * A collective on a window. It yields the rank that it waits for, until this has done so many steps.
 * At the end it waits until all ranks have read all that they need: then buffers may change. Nothing
 * that it has in scratch lasts from one wait to the next.
 */
export type WindowSteps = Generator<Awaited, void, void>

export interface Awaited {
  /** Rank of the group; ALL for every other rank. */
  readonly rank: number
  readonly steps: number
}

export const ALL = -1

type WindowCollective = (window: Window, operation: Operation) => WindowSteps

/** Bytes of a chunk of a block: it is added up in scratch that stays in the caches. */
const CHUNK = 128 * 1024
/** Bytes of scratch that a collective takes at most. */
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
  const { input, count, dtype } = operation
  const bytes = count * dtypes[dtype].bytes
  const block = CHUNK * size
  const blocks = Math.max(1, Math.ceil(bytes / block))
  const folding = new Folding(window, operation, chunkBytes(Math.min(bytes, block), size))
  for (let i = 0; i <= blocks; i++) {
    if (i < blocks) {
      const left = Math.min(block, bytes - i * block)
      const chunk = chunkBytes(left, size)
      const at = i * block + rank * chunk
      folding.fold(input + at, input + at, at, Math.min(chunk, left - rank * chunk))
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

/** Bytes of a chunk of a block of so many bytes: whole elements. The last chunks may be shorter. */
function chunkBytes(bytes: number, size: number): number {
  return Math.ceil(bytes / size / GRAIN) * GRAIN
}

function* windowReduceScatter(window: Window, operation: Operation): WindowSteps {
  const { input, output, count, dtype } = operation
  const slice = count * dtypes[dtype].bytes
  const first = window.rank * slice
  const segments = cutIntoSegments({ at: 0, bytes: slice }, CHUNK)
  const folding = new Folding(window, operation, segments[0]!.bytes)
  for (const { at, bytes } of segments) {
    folding.fold(output + at, input + first + at, first + at, bytes)
  }
  window.advance()
  yield { rank: ALL, steps: 1 }
}

function* windowAllGather(window: Window, operation: Operation): WindowSteps {
  const { rank } = window
  const { input, output, count, dtype } = operation
  const bytes = count * dtypes[dtype].bytes
  for (const peer of otherRanks(window)) window.read(peer, output + peer * bytes, 0, bytes)
  window.advance()
  if (output + rank * bytes !== input) window.kernels.copy(output + rank * bytes, input, bytes)
  yield { rank: ALL, steps: 1 }
}

/** Combines what all ranks have at one place of their buffers, in the order of the ranks. */
class Folding {
  readonly #window: Window
  readonly #operation: Operation
  readonly #sum: number
  readonly #part: number

  /** @param bytes - combined at once, at most */
  constructor(window: Window, operation: Operation, bytes: number) {
    this.#window = window
    this.#operation = operation
    this.#sum = window.scratch(bytes)
    this.#part = window.scratch(bytes)
  }

  /**
   * @param output - where the result goes; it may be the own part
   * @param own - where this rank's part is
   * @param offset - where the others have theirs, in their buffers
   */
  fold(output: number, own: number, offset: number, bytes: number): void {
    if (bytes <= 0) return
    const { rank, size, kernels } = this.#window
    const { dtype, reduction } = this.#operation
    const count = bytes / dtypes[dtype].bytes
    let sum = this.#take(0, own, this.#sum, offset, bytes)
    for (let peer = 1; peer < size; peer++) {
      // the result may be the own part, which must be read before it is written
      const out = peer >= rank ? output : this.#sum
      const part = this.#take(peer, own, this.#part, offset, bytes)
      kernels.combine(reduction, dtype, out, sum, part, count)
      sum = out
    }
    if (reduction === 'avg') kernels.scale(dtype, output, count, 1 / size)
  }

  /** Where a rank's part is, after it was copied to scratch if it is another's. */
  #take(rank: number, own: number, scratch: number, offset: number, bytes: number): number {
    if (rank === this.#window.rank) return own
    this.#window.read(rank, scratch, offset, bytes)
    return scratch
  }
}
