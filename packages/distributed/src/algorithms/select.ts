import {
  bytesOf,
  sliced,
  type AlgorithmName,
  type Operation,
  type OperationName,
} from '../operation.ts'
import { binomialTree } from './binomial-tree.ts'
import { bruck, dissemination } from './bruck.ts'
import { chain } from './chain.ts'
import type { Algorithm, Algorithms, Layout } from './channel.ts'
import { copyAlone, direct } from './direct.ts'
import { flatBytes } from './flat.ts'
import { halvingDoubling, recursiveDoubling, recursiveHalving } from './halving-doubling.ts'
import { hierarchical } from './hierarchical.ts'
import { linear } from './linear.ts'
import { pairwise } from './pairwise.ts'
import { ring } from './ring.ts'
import { builtInTuning, type TuningTable } from './tuning-table.ts'
import { findWindowCollective } from './window.ts'

const algorithms: Readonly<Partial<Record<AlgorithmName, Algorithms>>> = {
  ring,
  'recursive-doubling': recursiveDoubling,
  'halving-doubling': halvingDoubling,
  'recursive-halving': recursiveHalving,
  pairwise,
  bruck,
  dissemination,
  'binomial-tree': binomialTree,
  chain,
  hierarchical: hierarchical((name, bytes, tuning) =>
    implementationOf(name, chooseBetweenHosts(name, bytes, tuning))!,
  ),
  direct,
  linear,
}

/** Returns undefined if the operation does not have the algorithm. */
function implementationOf(name: OperationName, algorithm: AlgorithmName): Algorithm | undefined {
  return algorithms[algorithm]?.[name === 'allReduceCoalesced' ? 'allReduce' : name]
}

/** The facts that determine the algorithm; the same on all ranks of a group. */
export interface Situation {
  /** The size of the whole buffer in bytes. */
  readonly bytes: number
  readonly layout: Layout
}

/** Chooses the best algorithm for messages by a tuning table. */
export function chooseAlgorithm(
  operation: OperationName,
  { bytes, layout }: Situation,
  { sockets, sharedMemory }: TuningTable = builtInTuning,
): AlgorithmName {
  if (layout === 'mixed' && implementationOf(operation, 'hierarchical') !== undefined)
    return 'hierarchical'
  const isShared = layout === 'together'
  const thresholds = (isShared ? sharedMemory[operation] : undefined) ?? sockets[operation]
  return thresholds.find(({ upTo }) => bytes <= upTo)!.algorithm
}

/** Chooses the algorithm between the hosts of a hierarchical all-reduce. */
export function chooseBetweenHosts(
  name: OperationName,
  bytes: number,
  tuning: TuningTable = builtInTuning,
): AlgorithmName {
  const situation = { bytes, layout: 'apart' } as const
  const chosen = chooseAlgorithm(name, situation, tuning)
  // Without shared memory, choosing `hierarchical` again would recurse forever.
  return chosen === 'hierarchical' ? chooseAlgorithm(name, situation) : chosen
}

/**
 * Chooses how to run an operation without messages, if possible, in a group that shares memory.
 *
 * @param size - number of ranks of the group
 * @param slotBytes - size of each rank's slot for the group; -1 without slots
 */
export function chooseWithoutMessages(
  operation: Operation,
  size: number,
  slotBytes: number,
): 'flat' | 'window' | undefined {
  const { name, algorithm } = operation
  if (algorithm !== 'auto' && algorithm !== 'window') return undefined
  const bytes = flatBytes(operation, size) ?? Infinity
  if (algorithm === 'auto' && bytes <= slotBytes) return 'flat'
  return size > 1 && findWindowCollective(name) !== undefined ? 'window' : undefined
}

/** Returns the algorithms that a tuning table can choose for an operation. */
export function algorithmsForMessages(operation: OperationName): AlgorithmName[] {
  return (Object.keys(algorithms) as AlgorithmName[]).filter(
    (name) => implementationOf(operation, name) !== undefined,
  )
}

/** Returns the algorithms that the option `algorithm` of an operation accepts besides `auto`. */
export function algorithmsOf(operation: OperationName): AlgorithmName[] {
  const hasWindow = findWindowCollective(operation) !== undefined
  return [...algorithmsForMessages(operation), ...(hasWindow ? (['window'] as const) : [])]
}

/** Returns the operation with its algorithm for messages in a group of this size and layout. */
export function resolveAlgorithm(
  operation: Operation,
  size: number,
  layout: Layout,
  tuning: TuningTable,
): Operation {
  const { name, algorithm, deterministic } = operation
  if (deterministic) return { ...operation, algorithm: 'direct' }
  if (implementationOf(name, algorithm) !== undefined) return operation
  const bytes = bytesOf(operation) * (sliced.has(name) ? size : 1)
  return { ...operation, algorithm: chooseAlgorithm(name, { bytes, layout }, tuning) }
}

/**
 * Returns the implementation of the operation's algorithm. In a group of one, an operation only
 * copies.
 */
export function findAlgorithm(
  { name, algorithm }: Pick<Operation, 'name' | 'algorithm'>,
  groupSize: number,
): Algorithm {
  const isMessage = name === 'send' || name === 'recv'
  const found = groupSize === 1 && !isMessage ? copyAlone : implementationOf(name, algorithm)
  if (found === undefined) throw new RangeError(`${name} has no algorithm ${algorithm}`)
  return found
}
