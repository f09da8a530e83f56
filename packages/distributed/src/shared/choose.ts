import { chooseWithoutMessages } from '../algorithms/select.ts'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import type { Operation } from '../operation.ts'
import type { GroupFacts } from '../transports/transport-collectives.ts'
import type { EpochContext } from './epoch-run.ts'

/** What collectives on shared memory use. The threads of a rank have one each. */
export interface SharedContext extends EpochContext {
  /** Memory for the epochs of its groups, the same for both threads; see `createEpochs`. */
  readonly epochs: Int32Array
  readonly tuning: TuningTable
}

/** How ranks run an operation on shared memory; undefined where they exchange messages. */
export function chooseShared(
  operation: Operation,
  { id, layout, ranks }: GroupFacts,
  { slots, rank, tuning }: SharedContext,
): 'flat' | 'window' | undefined {
  if (operation.isReserved || layout !== 'together' || id >= slots.exposingGroups) return undefined
  const slotBytes = id < slots.groups ? slots.slotBytes : -1
  const algorithm = chooseWithoutMessages(operation, ranks.length, slotBytes, tuning)
  const areReached = ranks.every((peer) => peer === rank || slots.reaches(peer))
  return areReached ? algorithm : undefined
}
