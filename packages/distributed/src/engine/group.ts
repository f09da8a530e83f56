import type { TsrError } from '@tsrun/core'
import type { Layout } from '../algorithms/channel.ts'
import type { Fingerprint } from '../operation.ts'
import type { Link } from './link.ts'
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
  /** By member: which host; the members on one share memory. */
  readonly hosts: readonly number[]
  readonly layout: Layout
  /** Running collectives by sequence. */
  readonly active: Map<number, Task>
  /** Fingerprints of the last collectives, by sequence modulo its length. */
  readonly history: { sequence: number; fingerprint: Fingerprint }[]
  /** World ranks that have destroyed it. */
  readonly departed: Set<number>
  /** Collectives from this sequence on are refused with this error. */
  failure: { readonly from: number; readonly error: TsrError } | undefined
}

export function createGroup(
  id: number,
  name: string,
  rank: number,
  ranks: readonly number[],
  hostOfRank: readonly number[] | undefined,
): EngineGroup {
  const hosts = ranks.map((world) => hostOfRank?.[world] ?? world)
  const layout = layoutOf(hosts)
  return {
    id,
    name,
    rank,
    ranks,
    hosts,
    layout,
    active: new Map(),
    history: [],
    departed: new Set(),
    failure: undefined,
  }
}

function layoutOf(hosts: readonly number[]): Layout {
  const count = new Set(hosts).size
  if (count === hosts.length) return 'apart'
  return count === 1 ? 'together' : 'mixed'
}

/** Whether a peer exchanges nothing more on this group: it has destroyed it, has left or was lost. */
export function hasLeft({ departed }: EngineGroup, { closed, peer }: Link): boolean {
  return closed !== undefined || departed.has(peer)
}

export function remember(group: EngineGroup, sequence: number, fingerprint: Fingerprint): void {
  group.history[sequence % HISTORY] = { sequence, fingerprint }
}

export function recall(group: EngineGroup, sequence: number): Fingerprint | undefined {
  const entry = group.history[sequence % HISTORY]
  return entry?.sequence === sequence ? entry.fingerprint : undefined
}
