import type { AlgorithmName, OperationName } from '../operation.ts'

/** An algorithm, and up to how many bytes of the whole buffer it is the best. */
export interface Rung {
  /** Inclusive; Infinity on the last rung. */
  readonly upTo: number
  readonly algorithm: AlgorithmName
}

/** From small buffers to large ones; the last rung has no limit. */
export type Ladder = readonly Rung[]

/** How the ranks of a group reach each other: the keys of `Ladders`. */
export const media = ['sockets', 'sharedMemory'] as const

/** What serves which size. What is not there under `sharedMemory` is as over sockets. */
export interface Ladders {
  readonly sockets: Readonly<Record<OperationName, Ladder>>
  readonly sharedMemory: Readonly<Partial<Record<OperationName, Ladder>>>
}

const KIB = 1024
const MIB = 1024 * KIB

/** `ladder('ring')` for every size, `ladder('bruck', 64 * KIB, 'ring')` with a limit between. */
function ladder(...parts: readonly (AlgorithmName | number)[]): Ladder {
  return parts
    .filter((part) => typeof part === 'string')
    .map((algorithm, i) => ({
      upTo: (parts[2 * i + 1] as number | undefined) ?? Infinity,
      algorithm,
    }))
}

const allReduce = ladder('recursive-doubling', 256 * KIB, 'halving-doubling', 16 * MIB, 'ring')
const sharedAllReduce = ladder('recursive-doubling', 256 * KIB, 'halving-doubling', MIB, 'direct')
const tree = ladder('binomial-tree', MIB, 'chain')
const rooted = ladder('binomial-tree', 64 * KIB, 'linear')

/** Measured by `npm run bench -- tune`: few steps for small buffers, few bytes for large ones. */
export const builtInLadders: Ladders = {
  sockets: {
    send: ladder('direct'),
    recv: ladder('direct'),
    broadcast: tree,
    reduce: tree,
    allReduce,
    allReduceCoalesced: allReduce,
    reduceScatter: ladder('recursive-halving', MIB, 'pairwise', 8 * MIB, 'ring'),
    allGather: ladder('bruck', 256 * KIB, 'direct', 8 * MIB, 'ring'),
    allGatherV: ladder('ring'),
    gather: rooted,
    scatter: rooted,
    gatherV: ladder('linear'),
    scatterV: ladder('linear'),
    allToAll: ladder('bruck', 16 * KIB, 'pairwise'),
    allToAllV: ladder('pairwise'),
    barrier: ladder('dissemination'),
    monitoredBarrier: ladder('linear'),
  },
  sharedMemory: {
    broadcast: ladder('binomial-tree', 64 * KIB, 'direct'),
    allReduce: sharedAllReduce,
    allReduceCoalesced: sharedAllReduce,
    reduceScatter: ladder('recursive-halving', 16 * KIB, 'direct'),
    allGather: ladder('bruck', 16 * KIB, 'direct'),
  },
}
