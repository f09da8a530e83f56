import { chooseWithoutMessages } from '../algorithms/select.ts'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import type { Operation } from '../operation.ts'
import type { GroupFacts } from '../transports/transport-collectives.ts'
import type { EpochContext } from './epoch-run.ts'

/** The state of collectives on shared memory; one for each thread of a rank. */
export interface SharedContext extends EpochContext {
  /** The epochs of all groups, shared by the threads of a rank; see `createEpochs`. */
  readonly epochs: Int32Array
  readonly tuning: TuningTable
}

/** Returns the shared-memory algorithm of an operation, or undefined if it uses messages. */
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
