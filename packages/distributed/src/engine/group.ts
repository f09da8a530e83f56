import type { TsrError } from '@tsrun/core'
import type { Layout } from '../algorithms/channel.ts'
import { isCollective, type Fingerprint, type Operation } from '../operation.ts'
import type { Epochs } from '../shared/epochs.ts'
import type { SharedSlots } from '../transports/transport.ts'
import type { Link } from './messages/link.ts'
import type { Task } from './task.ts'

/**
 * Returns the error of a running operation after a failure of its group. Returns undefined if
 * the operation gets the same error as later operations.
 */
export type ErrorOf = (task: Task) => TsrError | undefined

interface GroupFailure {
  /** Collectives from this sequence number on are refused. */
  readonly from: number
  /** The error that later operations get. */
  readonly error: TsrError
  /** Returns the error of each running operation. */
  readonly errorOf: ErrorOf
}

/** Number of completed collectives that a group remembers for mismatch errors. */
const HISTORY = 256

/** A process group as the engine sees it. */
export type EngineGroup = ReturnType<typeof createGroup>

/**
 * @param rank - rank of this process in the group
 * @param ranks - world rank of each member
 * @param epochs - undefined if the ranks share no slots
 */
export function createGroup(
  id: number,
  name: string,
  rank: number,
  ranks: readonly number[],
  hostOfRank: readonly number[] | undefined,
  epochs: Epochs | undefined,
  slots: SharedSlots | undefined,
) {
  /** The host of each member. Members on one host share memory. */
  const hosts = ranks.map((world) => hostOfRank?.[world] ?? world)
  /** Fingerprints of the last collectives, each at index (sequence modulo HISTORY). */
  const history: { sequence: number; fingerprint: Fingerprint }[] = []
  return {
    id,
    name,
    rank,
    ranks,
    hosts,
    layout: layoutOf(hosts),
    /** Running collectives, by sequence number. */
    active: new Map<number, Task>(),
    history,
    epochs,
    slots,
    /** World ranks that have destroyed the group. */
    departed: new Set<number>(),
    /** Set once the group has failed. */
    failure: undefined as GroupFailure | undefined,
  }
}

/**
 * Returns which members share memory.
 * @param hosts - the host of each member
 */
export function layoutOf(hosts: readonly number[]): Layout {
  const count = new Set(hosts).size
  if (count === hosts.length) return 'apart'
  return count === 1 ? 'together' : 'mixed'
}

/** Whether a peer has destroyed this group, has left, or was lost. */
export function hasDeparted({ departed }: EngineGroup, { closed, peer }: Link): boolean {
  return closed !== undefined || departed.has(peer)
}

/** Whether the group refuses this operation because of an earlier failure. */
export function refuses({ failure }: EngineGroup, operation: Operation): boolean {
  if (failure === undefined) return false
  return !isCollective(operation) || operation.sequence >= failure.from
}

export function remember(group: EngineGroup, sequence: number, fingerprint: Fingerprint): void {
  group.history[sequence % HISTORY] = { sequence, fingerprint }
}

/** Returns the fingerprint of a completed collective, if it is known. */
export function recall(group: EngineGroup, sequence: number): Fingerprint | undefined {
  const { id, rank, ranks, epochs, slots, history } = group
  // If the last collective ended on the calling thread, `history` may not contain it.
  if (epochs?.isUnchecked === true) {
    const last = slots!.headerOf(ranks[rank]!, id, epochs.over)
    if (last.sequence === sequence) return last.fingerprint
  }
  const entry = history[sequence % HISTORY]
  return entry?.sequence === sequence ? entry.fingerprint : undefined
}
