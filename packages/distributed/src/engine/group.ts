import type { TsrError } from '@tsrun/core'
import type { Fingerprint } from './operation.ts'
import type { Task } from './task.ts'

/** Collectives that a group remembers after their end, to name them in a mismatch. */
const HISTORY = 256

/** A process group as the engine sees it. */
export interface EngineGroup {
  readonly id: number
  readonly name: string
  /** Rank of this process in the group. */
  readonly rank: number
  /** World rank of each member. */
  readonly ranks: readonly number[]
  /** Whether all members share memory with each other. */
  readonly shared: boolean
  /** Running collectives by sequence. */
  readonly active: Map<number, Task>
  /** Fingerprints of the last collectives, by sequence modulo its length. */
  readonly history: { sequence: number; fingerprint: Fingerprint }[]
  /** Collectives from this sequence on are refused with this error. */
  failure: { readonly from: number; readonly error: TsrError } | undefined
}

export function createGroup(
  id: number,
  name: string,
  rank: number,
  ranks: readonly number[],
  hosts: readonly number[] | undefined,
): EngineGroup {
  const shared = hosts !== undefined && ranks.every((world) => hosts[world] === hosts[ranks[0]!])
  return { id, name, rank, ranks, shared, active: new Map(), history: [], failure: undefined }
}

export function remember(group: EngineGroup, sequence: number, fingerprint: Fingerprint): void {
  group.history[sequence % HISTORY] = { sequence, fingerprint }
}

export function recall(group: EngineGroup, sequence: number): Fingerprint | undefined {
  const entry = group.history[sequence % HISTORY]
  return entry?.sequence === sequence ? entry.fingerprint : undefined
}
