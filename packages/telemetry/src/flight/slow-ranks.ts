import type { FlightDump, FlightEntry } from './dump.ts'
import type { SlowFinding } from './findings.ts'
import type { MergedGroup } from './merge.ts'

/** Collectives below which nothing is said. */
const ENOUGH = 10
/** Share of the collectives to which a slow rank comes last. */
const MOSTLY = 0.6
/** Milliseconds behind the first that matter. */
const NOTABLE = 1

/**
 * Ranks that come last to most collectives of a group. Only ranks of one host are compared: clocks
 * of hosts differ.
 */
export function findSlowRanks(
  { name, collectives, ranks }: MergedGroup,
  byRank: ReadonlyMap<number, FlightDump>,
): SlowFinding[] {
  const hosts = new Set(ranks.map((rank) => byRank.get(rank)?.header.host))
  return [...hosts].flatMap((host): SlowFinding[] => {
    const members = ranks.filter((rank) => byRank.get(rank)?.header.host === host)
    if (host === undefined || members.length < 2) return []
    const met = [...collectives.values()].filter((entered) => members.every((r) => entered.has(r)))
    if (met.length < ENOUGH) return []
    const lags = met.map((entered) => lagOf(entered, members))
    return members.flatMap((rank): SlowFinding[] => {
      const own = lags.filter(({ last }) => last === rank).map(({ behind }) => behind)
      const behind = median(own)
      if (own.length < MOSTLY * met.length || behind < NOTABLE) return []
      return [
        { kind: 'slow', group: name, rank, collectives: met.length, last: own.length, behind },
      ]
    })
  })
}

function lagOf(
  entered: ReadonlyMap<number, FlightEntry>,
  members: readonly number[],
): { last: number; behind: number } {
  const posted = members
    .map((rank) => ({ rank, at: entered.get(rank)!.posted }))
    .sort((a, b) => a.at - b.at)
  const last = posted.at(-1)!
  return { last: last.rank, behind: last.at - posted[0]!.at }
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? 0
}
