import type { AlgorithmName, OperationName } from '../operation.ts'

/** An algorithm, and the largest buffer for which to use it. */
export interface Threshold {
  /** Size of the whole buffer in bytes, inclusive. Infinity in the last threshold of a list. */
  readonly upTo: number
  readonly algorithm: AlgorithmName
}

/** Thresholds by ascending size of the buffer. The last threshold has no limit. */
export type Thresholds = readonly Threshold[]

/** How the ranks of a group communicate: the keys of a `TuningTable`. */
export const media = ['sockets', 'sharedMemory'] as const

/** The algorithm for each operation and buffer size. It applies to operations that use messages. */
export interface TuningTable {
  readonly sockets: Readonly<Record<OperationName, Thresholds>>
  /** Thresholds for groups that share memory. Omitted operations use the thresholds for sockets. */
  readonly sharedMemory: Readonly<Partial<Record<OperationName, Thresholds>>>
}

const KIB = 1024
const MIB = 1024 * KIB

/** `choose('bruck', 64 * KIB, 'ring')` selects Bruck's algorithm up to 64 KiB and the ring above. */
function choose(...parts: readonly (AlgorithmName | number)[]): Thresholds {
  return parts
    .filter((part) => typeof part === 'string')
    .map((algorithm, i) => ({
      upTo: (parts[2 * i + 1] as number | undefined) ?? Infinity,
      algorithm,
    }))
}

const allReduce = choose('recursive-doubling', 256 * KIB, 'halving-doubling', 64 * MIB, 'ring')
const sharedAllReduce = choose('recursive-doubling', 256 * KIB, 'halving-doubling', MIB, 'direct')
const tree = choose('binomial-tree', MIB, 'chain')
const rooted = choose('binomial-tree', 64 * KIB, 'linear')

/**
 * The built-in table, measured by `npm run bench -- tune`. Small buffers need few steps, large
 * buffers need few bytes.
 */
export const builtInTuning: TuningTable = {
  sockets: {
    send: choose('direct'),
    recv: choose('direct'),
    broadcast: tree,
    reduce: tree,
    allReduce,
    allReduceCoalesced: allReduce,
    reduceScatter: choose('recursive-halving', MIB, 'direct', 8 * MIB, 'ring'),
    allGather: choose('bruck', 256 * KIB, 'direct', 8 * MIB, 'ring'),
    allGatherV: choose('ring'),
    gather: rooted,
    scatter: rooted,
    allToAll: choose('pairwise'),
    allToAllV: choose('pairwise'),
    barrier: choose('dissemination'),
    monitoredBarrier: choose('linear'),
  },
  sharedMemory: {
    broadcast: choose('binomial-tree', 64 * KIB, 'direct'),
    reduce: choose('binomial-tree', 32 * MIB, 'direct'),
    allReduce: sharedAllReduce,
    allReduceCoalesced: sharedAllReduce,
    reduceScatter: choose('recursive-halving', 16 * KIB, 'direct'),
    allGather: choose('bruck', 16 * KIB, 'direct'),
  },
}
