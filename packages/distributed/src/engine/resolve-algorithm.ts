import type { Ladders } from '../algorithms/ladders.ts'
import { algorithmsOf, chooseAlgorithm, inRankOrder } from '../algorithms/select.ts'
import { dtypes } from '../dtype.ts'
import type { EngineGroup } from './group.ts'
import { sliced, type Operation } from '../operation.ts'
import type { TransportCollectives } from '../transports/transport-collectives.ts'

/** The operation with the algorithm that runs it in this group. */
export function resolveAlgorithm(
  operation: Operation,
  group: EngineGroup,
  ladders?: Ladders,
  instead?: TransportCollectives,
): Operation {
  const taken = instead?.take(operation, group)
  if (taken !== undefined) return taken
  const { name, algorithm, count, dtype, deterministic } = operation
  if (deterministic) return { ...operation, algorithm: inRankOrder(algorithm) }
  if (algorithm !== 'auto' && algorithmsOf(name).includes(algorithm)) return operation
  const slices = sliced.has(name) ? group.ranks.length : 1
  const bytes = count * dtypes[dtype].bytes * slices
  return {
    ...operation,
    algorithm: chooseAlgorithm(name, { bytes, layout: group.layout }, ladders),
  }
}
