import { chooseWithoutMessages } from '../algorithms/select.ts'
import type { Operation } from '../operation.ts'
import type { GroupFacts } from '../transports/transport.ts'
import type { EpochContext } from './epoch-run.ts'

/** The state for collectives on shared memory. Each thread of a rank has its own object. */
export interface SharedContext extends EpochContext {
  /** The epochs of all groups, from `createEpochs`. The threads of a rank share this memory. */
  readonly epochs: Int32Array
}

/**
 * Returns the shared-memory algorithm of an operation. Returns undefined if the operation uses
 * messages.
 */
export function chooseShared(
  operation: Operation,
  { id, layout, ranks }: GroupFacts,
  { slots, rank }: SharedContext,
): 'flat' | 'window' | undefined {
  if (operation.isReserved || layout !== 'together' || id >= slots.exposingGroups) return undefined
  const slotBytes = id < slots.groups ? slots.slotBytes : -1
  const algorithm = chooseWithoutMessages(operation, ranks.length, slotBytes)
  const areReached = ranks.every((peer) => peer === rank || slots.reaches(peer))
  return areReached ? algorithm : undefined
}
