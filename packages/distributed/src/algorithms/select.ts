import type { AlgorithmName, Operation, OperationName } from '../operation.ts'
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
import type { Layout } from './channel.ts'
import { halvingDoublingAllReduce } from './halving-doubling.ts'
import { hierarchicalAllReduce, hierarchicalBroadcast, type Between } from './hierarchical.ts'
import { builtInLadders, type Ladders } from './ladders.ts'
import { linearAllReduce, linearBarrier, linearGather, linearScatter } from './linear.ts'
import { pairwiseAllToAll, pairwiseReduceScatter } from './pairwise.ts'
import { orderedAllReduce, orderedReduce, orderedReduceScatter } from './ordered.ts'
import { premultiplied } from './premultiplied.ts'
import { recursiveDoublingAllReduce } from './recursive-doubling.ts'
import { recursiveHalvingReduceScatter } from './recursive-halving.ts'
import { ringAllGather, ringAllReduce, ringReduceScatter } from './ring.ts'

/** What serves between hosts in a hierarchical collective. */
const betweenHosts: Between = (name, bytes, ladders) => {
  const chosen = chooseAlgorithm(name, { bytes, layout: 'apart' }, ladders)
  // a tuning that takes it everywhere would go round in a circle
  const isCircle = chosen === 'hierarchical'
  const algorithm = isCircle ? chooseAlgorithm(name, { bytes, layout: 'apart' }) : chosen
  return table[name][algorithm]!
}

const allReduce: Partial<Record<AlgorithmName, Algorithm>> = {
  ring: ringAllReduce,
  'recursive-doubling': recursiveDoublingAllReduce,
  'halving-doubling': halvingDoublingAllReduce,
  hierarchical: hierarchicalAllReduce(betweenHosts),
  direct: directAllReduce,
  linear: linearAllReduce,
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
    hierarchical: hierarchicalBroadcast(betweenHosts),
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

/** What decides, the same on all ranks of a group. */
export interface Situation {
  /** Of the whole buffer. */
  readonly bytes: number
  readonly layout: Layout
}

/** The best algorithm. The same facts and ladders give the same choice everywhere. */
export function chooseAlgorithm(
  operation: OperationName,
  { bytes, layout }: Situation,
  { sockets, sharedMemory }: Ladders = builtInLadders,
): AlgorithmName {
  if (layout === 'mixed' && table[operation].hierarchical !== undefined) return 'hierarchical'
  const shared = layout === 'together'
  const ladder = (shared ? sharedMemory[operation] : undefined) ?? sockets[operation]
  return ladder.find(({ upTo }) => bytes <= upTo)!.algorithm
}

/** The algorithms of an operation: what `algorithm` may be in a call of it, beside `auto`. */
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
