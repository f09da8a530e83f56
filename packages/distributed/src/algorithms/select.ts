import type { AlgorithmName, OperationName } from '../engine/operation.ts'
import type { Algorithm } from './algorithm.ts'
import { binomialBroadcast, binomialReduce } from './binomial-tree.ts'
import { chainBroadcast, chainReduce } from './chain.ts'
import { copyAlone, receiveMessage, sendMessage } from './direct.ts'
import { disseminationBarrier } from './dissemination.ts'
import { halvingDoublingAllReduce } from './halving-doubling.ts'
import { recursiveDoublingAllReduce } from './recursive-doubling.ts'
import { ringAllGather, ringAllReduce, ringReduceScatter } from './ring.ts'

/** Which algorithms each operation has. */
const table: Readonly<Record<OperationName, Partial<Record<AlgorithmName, Algorithm>>>> = {
  send: { direct: sendMessage },
  recv: { direct: receiveMessage },
  broadcast: { 'binomial-tree': binomialBroadcast, chain: chainBroadcast },
  reduce: { 'binomial-tree': binomialReduce, chain: chainReduce },
  allReduce: {
    ring: ringAllReduce,
    'recursive-doubling': recursiveDoublingAllReduce,
    'halving-doubling': halvingDoublingAllReduce,
  },
  reduceScatter: { ring: ringReduceScatter },
  allGather: { ring: ringAllGather },
  barrier: { dissemination: disseminationBarrier },
}

/** Up to so many bytes the fewest steps win; above, the fewest bytes. */
const SMALL_ALL_REDUCE = 256 * 1024
const MIDDLE_ALL_REDUCE = 8 * 1024 * 1024
const SMALL_TREE = 64 * 1024

/** The best algorithm for `bytes` bytes of buffer. The same facts give the same choice everywhere. */
export function chooseAlgorithm(operation: OperationName, bytes: number): AlgorithmName {
  switch (operation) {
    case 'send':
    case 'recv':
      return 'direct'
    case 'broadcast':
    case 'reduce':
      return bytes <= SMALL_TREE ? 'binomial-tree' : 'chain'
    case 'allReduce':
      if (bytes <= SMALL_ALL_REDUCE) return 'recursive-doubling'
      return bytes <= MIDDLE_ALL_REDUCE ? 'halving-doubling' : 'ring'
    case 'reduceScatter':
    case 'allGather':
      return 'ring'
    case 'barrier':
      return 'dissemination'
  }
}

/** The algorithms of an operation, for checking a caller's choice. */
export function algorithmsOf(operation: OperationName): AlgorithmName[] {
  return Object.keys(table[operation]) as AlgorithmName[]
}

export function findAlgorithm(
  operation: OperationName,
  name: AlgorithmName,
  groupSize: number,
): Algorithm {
  const isMessage = operation === 'send' || operation === 'recv'
  if (groupSize === 1 && !isMessage) return copyAlone
  const algorithm = table[operation][name]
  if (algorithm === undefined) throw new RangeError(`${operation} has no algorithm ${name}`)
  return algorithm
}
