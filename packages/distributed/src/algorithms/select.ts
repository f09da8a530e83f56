import type { AlgorithmName, Operation, OperationName } from '../engine/operation.ts'
import type { Algorithm } from './algorithm.ts'
import { binomialGather, binomialScatter } from './binomial-slices.ts'
import { binomialBroadcast, binomialReduce } from './binomial-tree.ts'
import { bruckAllGather, bruckAllToAll } from './bruck.ts'
import { chainBroadcast, chainReduce } from './chain.ts'
import {
  directAllGather,
  directAllReduce,
  directBroadcast,
  directReduceScatter,
} from './direct-exchange.ts'
import { copyAlone, receiveMessage, sendMessage } from './direct.ts'
import { disseminationBarrier } from './dissemination.ts'
import { halvingDoublingAllReduce } from './halving-doubling.ts'
import { linearBarrier, linearGather, linearScatter } from './linear.ts'
import { pairwiseAllToAll, pairwiseReduceScatter } from './pairwise.ts'
import { orderedAllReduce, orderedReduce, orderedReduceScatter } from './ordered.ts'
import { premultiplied } from './premultiplied.ts'
import { recursiveDoublingAllReduce } from './recursive-doubling.ts'
import { recursiveHalvingReduceScatter } from './recursive-halving.ts'
import { ringAllGather, ringAllReduce, ringReduceScatter } from './ring.ts'

const allReduce = {
  ring: ringAllReduce,
  'recursive-doubling': recursiveDoublingAllReduce,
  'halving-doubling': halvingDoublingAllReduce,
  direct: directAllReduce,
  ordered: orderedAllReduce,
}

/** Which algorithms each operation has. */
const table: Readonly<Record<OperationName, Partial<Record<AlgorithmName, Algorithm>>>> = {
  send: { direct: sendMessage },
  recv: { direct: receiveMessage },
  broadcast: {
    'binomial-tree': binomialBroadcast,
    chain: chainBroadcast,
    direct: directBroadcast,
  },
  reduce: { 'binomial-tree': binomialReduce, chain: chainReduce, ordered: orderedReduce },
  allReduce,
  reduceScatter: {
    ring: ringReduceScatter,
    'recursive-halving': recursiveHalvingReduceScatter,
    pairwise: pairwiseReduceScatter,
    direct: directReduceScatter,
    ordered: orderedReduceScatter,
  },
  allGather: { ring: ringAllGather, bruck: bruckAllGather, direct: directAllGather },
  barrier: { dissemination: disseminationBarrier },
  gather: { 'binomial-tree': binomialGather, linear: linearGather },
  scatter: { 'binomial-tree': binomialScatter, linear: linearScatter },
  allToAll: { pairwise: pairwiseAllToAll, bruck: bruckAllToAll },
  allGatherV: { ring: ringAllGather },
  gatherV: { linear: linearGather },
  scatterV: { linear: linearScatter },
  allToAllV: { pairwise: pairwiseAllToAll },
  allReduceCoalesced: allReduce,
  monitoredBarrier: { linear: linearBarrier },
}

/** Up to so many bytes the fewest steps win; above, the fewest bytes. */
const SMALL_ALL_REDUCE = 256 * 1024
const MIDDLE_ALL_REDUCE = 8 * 1024 * 1024
const SMALL_TREE = 64 * 1024
const SMALL_REDUCE_SCATTER = 64 * 1024
const SMALL_ALL_GATHER = 64 * 1024
const SMALL_ALL_TO_ALL = 16 * 1024

/** Where ranks share memory: above it everybody copies from everybody. */
const SMALL_SHARED = 64 * 1024

/** What decides, the same on all ranks of a group. */
export interface Situation {
  /** Of the whole buffer. */
  readonly bytes: number
  /** Whether all ranks of the group share memory. */
  readonly shared: boolean
}

/** The best algorithm. The same facts give the same choice everywhere. */
export function chooseAlgorithm(
  operation: OperationName,
  { bytes, shared }: Situation,
): AlgorithmName {
  const isDirect = shared && bytes > SMALL_SHARED && table[operation].direct !== undefined
  if (isDirect) return 'direct'
  switch (operation) {
    case 'send':
    case 'recv':
      return 'direct'
    case 'broadcast':
    case 'reduce':
      return bytes <= SMALL_TREE ? 'binomial-tree' : 'chain'
    case 'allReduce':
    case 'allReduceCoalesced':
      if (bytes <= SMALL_ALL_REDUCE) return 'recursive-doubling'
      return bytes <= MIDDLE_ALL_REDUCE ? 'halving-doubling' : 'ring'
    case 'reduceScatter':
      return bytes <= SMALL_REDUCE_SCATTER ? 'recursive-halving' : 'ring'
    case 'allGather':
      return bytes <= SMALL_ALL_GATHER ? 'bruck' : 'ring'
    case 'allGatherV':
      return 'ring'
    case 'gather':
    case 'scatter':
      return bytes <= SMALL_TREE ? 'binomial-tree' : 'linear'
    case 'gatherV':
    case 'scatterV':
    case 'monitoredBarrier':
      return 'linear'
    case 'allToAll':
      return bytes <= SMALL_ALL_TO_ALL ? 'bruck' : 'pairwise'
    case 'allToAllV':
      return 'pairwise'
    case 'barrier':
      return 'dissemination'
  }
}

/** The algorithms of an operation, for checking a caller's choice. */
export function algorithmsOf(operation: OperationName): AlgorithmName[] {
  return Object.keys(table[operation]) as AlgorithmName[]
}

/** The algorithms that combine the elements in the order of the ranks. */
const ordered: readonly AlgorithmName[] = ['ordered']

/** The choice that stays with `deterministic`. */
export function inRankOrder(algorithm: AlgorithmName): AlgorithmName {
  return ordered.includes(algorithm) ? algorithm : 'ordered'
}

export function findAlgorithm(
  { name, algorithm, reduction }: Pick<Operation, 'name' | 'algorithm' | 'reduction'>,
  groupSize: number,
): Algorithm {
  const isMessage = name === 'send' || name === 'recv'
  const found = groupSize === 1 && !isMessage ? copyAlone : table[name][algorithm]
  if (found === undefined) throw new RangeError(`${name} has no algorithm ${algorithm}`)
  return reduction === 'premulSum' ? premultiplied(found) : found
}
