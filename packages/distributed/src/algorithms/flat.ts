import { dtypes } from '../dtype.ts'
import { bytesOf, type Operation, type OperationName } from '../operation.ts'
import type { Kernels } from '../kernels/kernels.ts'

/*
 * Flat collectives, for small buffers of ranks that share memory (Graham & Shipman, "MPI support
 * for multi-core architectures: optimized shared memory collectives", 2008). Every rank publishes
 * its buffer in a slot that all others read, in one step and without messages. Reductions combine
 * in rank order, so all ranks get the same bits.
 *
 * A collective takes a few microseconds. Plain functions implement it, because allocating
 * generators would take longer than that.
 */

/** One epoch of a group's slots: each rank has published one buffer. */
export interface FlatEpoch {
  /** Rank of this process in the group. */
  readonly rank: number
  readonly size: number
  readonly kernels: Kernels
  /** Returns the heap offset of the published buffer of a group rank. The buffer is read-only. */
  slotOf(rank: number): number
}

type Readers = 'all read all' | 'all read the root' | 'the root reads all'

interface FlatCollective {
  readonly readers: Readers
  /** Whether the published buffer has a slice for each rank. */
  readonly isSliced?: boolean
  /**
   * Called when all buffers that this rank reads are published. `bytes` is the size of the whole
   * buffer or, if it is sliced, of a slice.
   */
  readonly take?: (epoch: FlatEpoch, operation: Operation, bytes: number) => void
}

const collectives: Partial<Record<OperationName, FlatCollective>> = {
  barrier: { readers: 'all read all' },
  allReduce: { readers: 'all read all', take: takeSum },
  allReduceCoalesced: { readers: 'all read all', take: takeSum },
  reduce: { readers: 'the root reads all', take: takeSum },
  reduceScatter: {
    readers: 'all read all',
    isSliced: true,
    take: (epoch, operation, bytes) => {
      fold(epoch, operation, operation.output, bytes * epoch.rank, bytes)
    },
  },
  allGather: { readers: 'all read all', take: takeAll },
  gather: { readers: 'the root reads all', take: takeAll },
  broadcast: {
    readers: 'all read the root',
    take: (epoch, { input, peer: root }, bytes) => {
      if (epoch.rank !== root) epoch.kernels.copy(input, epoch.slotOf(root), bytes)
    },
  },
  scatter: {
    readers: 'all read the root',
    isSliced: true,
    take: (epoch, operation, bytes) => {
      const { output, peer: root } = operation
      epoch.kernels.copy(output, bufferOf(epoch, operation, root) + epoch.rank * bytes, bytes)
    },
  },
  allToAll: {
    readers: 'all read all',
    isSliced: true,
    take: (epoch, operation, bytes) => {
      const { rank, size, kernels } = epoch
      for (let peer = 0; peer < size; peer++) {
        const from = bufferOf(epoch, operation, peer) + rank * bytes
        kernels.copy(operation.output + peer * bytes, from, bytes)
      }
    },
  },
}

export type FlatPlan = ReturnType<typeof planOf>

export const ALL = -1
export const NOBODY = -2

/**
 * Returns the largest number of bytes that a rank publishes. Returns undefined for an operation
 * without a flat algorithm.
 */
export function flatBytes(operation: Operation, size: number): number | undefined {
  const collective = collectives[operation.name]
  if (collective === undefined) return undefined
  return bytesOf(operation) * (collective.isSliced === true ? size : 1)
}

/** Returns the work of one rank in a flat collective. Sizes are in bytes. */
export function planOf(operation: Operation, rank: number, size: number) {
  const { name, peer: root } = operation
  const { readers, isSliced, take } = collectives[name]!
  const bytes = bytesOf(operation)
  const isPublished = readers !== 'all read the root' || rank === root
  const isReader = readers !== 'the root reads all' || rank === root
  return {
    bytes,
    /** Size of the published buffer at `input`. */
    published: isPublished ? bytes * (isSliced === true ? size : 1) : 0,
    /** The group rank whose buffer this rank waits for; ALL or NOBODY. */
    awaited: !isReader ? NOBODY : readers === 'all read the root' ? root : ALL,
    take: isReader ? take : undefined,
  }
}

/**
 * Returns the offset of a rank's published buffer. For this rank, returns its input instead, because
 * reading the slot would take cache lines from its other readers. The input must be unchanged.
 */
function bufferOf(epoch: FlatEpoch, { input }: Operation, rank: number): number {
  return rank === epoch.rank ? input : epoch.slotOf(rank)
}

/** Computes output = ((r0 + r1) + r2) + ..., over the data at `offset` in every slot. */
function fold(
  epoch: FlatEpoch,
  operation: Operation,
  output: number,
  offset: number,
  bytes: number,
): void {
  const { dtype, reduction } = operation
  const count = bytes / dtypes[dtype].bytes
  if (count === 0) return
  const { size, kernels } = epoch
  const first = bufferOf(epoch, operation, 0) + offset
  const second = bufferOf(epoch, operation, 1) + offset
  kernels.combine(reduction, dtype, output, first, second, count)
  // The output may have overwritten the input by now.
  for (let rank = 2; rank < size; rank++) {
    kernels.combine(reduction, dtype, output, output, epoch.slotOf(rank) + offset, count)
  }
  if (reduction === 'avg') kernels.scale(dtype, output, count, 1 / size)
}

function takeSum(epoch: FlatEpoch, operation: Operation, bytes: number): void {
  fold(epoch, operation, operation.input, 0, bytes)
}

function takeAll(epoch: FlatEpoch, operation: Operation, bytes: number): void {
  const { size, kernels } = epoch
  for (let rank = 0; rank < size; rank++) {
    kernels.copy(operation.output + rank * bytes, bufferOf(epoch, operation, rank), bytes)
  }
}
