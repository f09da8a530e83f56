import { formatRankList, formatRanks } from '@tsrun/core'
import type { FlightEntry } from '@tsrun/distributed/record'

/** A result of comparing the flight records of all ranks. Ranks are world ranks. */
export type FlightFinding = MissingFinding | MismatchFinding | MessageFinding | UnfinishedFinding

interface AboutOperation {
  readonly group: string
  readonly sequence: number
  readonly name: string
  readonly label?: string | undefined
}

/** A collective that some ranks have entered and others have not. */
interface MissingFinding extends AboutOperation {
  readonly kind: 'missing'
  readonly missing: readonly RankPlace[]
  /** The ranks that have entered the collective and not left it. */
  readonly waiting: readonly number[]
  /** The members without a flight record. */
  readonly unknown: readonly number[]
}

/** What a rank was doing while others waited for it. */
export interface RankPlace {
  readonly rank: number
  /** The rank's last collective of the group, human-readable; undefined before the first. */
  readonly last: string | undefined
  /** The rank's current operation, including other groups and messages; undefined between operations. */
  readonly running: string | undefined
  /** True if the rank called the operation only after the group had failed. */
  readonly late: boolean
}

/** Ranks that ran different operations at the same position. */
interface MismatchFinding {
  readonly kind: 'mismatch'
  readonly group: string
  readonly sequence: number
  /** Each operation, with the ranks that ran it and their call sites. */
  readonly calls: readonly {
    readonly operation: string
    readonly label?: string | undefined
    readonly ranks: readonly number[]
    readonly sites: readonly string[]
  }[]
}

/** A send or receive that has not completed, or that timed out. */
export interface MessageFinding {
  readonly kind: 'message'
  readonly group: string
  readonly rank: number
  readonly name: string
  readonly operation: string
  readonly label?: string | undefined
  /** Undefined for a receive from any rank. */
  readonly peer: number | undefined
  readonly tag: number
  /** What the peer was doing; undefined without a record of that rank. */
  readonly place: RankPlace | undefined
}

/** A collective that all ranks have entered and not all have left. */
interface UnfinishedFinding extends AboutOperation {
  readonly kind: 'unfinished'
  readonly running: readonly number[]
  /** The error codes, if the collective failed. */
  readonly errors: readonly string[]
  /** The ranks whose messages the running ranks wait for. */
  readonly waitsFor: readonly number[]
}

/** Whether the finding lists the rank as missing, or as unknown. */
export function isAbsentIn(finding: FlightFinding, rank: number): finding is MissingFinding {
  if (finding.kind !== 'missing') return false
  return finding.unknown.includes(rank) || finding.missing.some((place) => place.rank === rank)
}

export function describeFinding(finding: FlightFinding): string {
  switch (finding.kind) {
    case 'missing':
      return describeMissing(finding)
    case 'mismatch': {
      const calls = finding.calls.map(({ ranks, operation, label, sites }) => {
        const where = sites.length === 0 ? '' : ` called at ${sites.join(' and ')}`
        return `${formatRanks(ranks)} ran ${operation}${inBrackets(label)}${where}`
      })
      return `mismatch at #${finding.sequence} of group ${finding.group}: ${calls.join('; ')}`
    }
    case 'message':
      return describeMessage(finding)
    case 'unfinished': {
      const { name, sequence, label, group, running, errors, waitsFor } = finding
      const how = errors.length === 0 ? 'is not finished' : `failed (${errors.join(', ')})`
      const whom = waitsFor.length === 0 ? '' : `, waiting for messages of ${formatRanks(waitsFor)}`
      return `${name} #${sequence}${inBrackets(label)} of group ${group} ${how} on ${formatRanks(running)}${whom}; all ranks had entered it`
    }
  }
}

function describeMessage(finding: MessageFinding): string {
  const { rank, label, peer, group, place } = finding
  const what = `${nameMessage(finding)}${inBrackets(label)} of group ${group}`
  const waits = `rank ${rank} waits in ${what}`
  if (peer === undefined) return waits
  return `${waits}; ${place === undefined ? `rank ${peer} left no record` : `rank ${peer}: ${doing(place, group)}`}`
}

/** `send float32[4] to rank 3, tag 0` */
export function nameMessage({
  name,
  operation,
  peer,
  tag = 0,
}: Pick<FlightEntry, 'name' | 'operation' | 'peer' | 'tag'>): string {
  const other = peer === undefined ? 'any rank' : `rank ${peer}`
  const way = name === 'send' ? 'to' : 'from'
  return `${operation.replace('send/recv', name)} ${way} ${other}, tag ${tag}`
}

/** `rank 2 never entered allReduce #17 (layer4.weight) of group world; last op ...; waiting for it: 0, 1` */
function describeMissing(finding: MissingFinding): string {
  const { name, sequence, label, group, missing, waiting, unknown } = finding
  const operation = `${name} #${sequence}${inBrackets(label)} of group ${group}`
  const parts = missing.map((place) => {
    const instead = place.late ? 'it came only after the group had failed' : doing(place, group)
    return `rank ${place.rank} never entered ${operation}; ${instead}`
  })
  if (unknown.length > 0) {
    const it = parts.length > 0 ? 'it' : operation
    parts.push(`${formatRanks(unknown)} left no record, so it is unknown whether it entered ${it}`)
  }
  return `${parts.join('; ')}; waiting for ${missing.length + unknown.length > 1 ? 'them' : 'it'}: ${formatRankList(waiting)}`
}

function doing({ last, running }: RankPlace, group: string): string {
  const before = last === undefined ? `no op of group ${group} so far` : `last op ${last}`
  if (running === undefined || running === last) return before
  return `${before}, now in ${running}`
}

export function inBrackets(label = ''): string {
  return label === '' ? '' : ` (${label})`
}
