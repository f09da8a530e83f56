import { formatRankList, formatRanks } from '@tsrun/core'

/** What the comparison of all ranks' dumps shows. Ranks are ranks of the world. */
export type FlightFinding =
  MissingFinding | MismatchFinding | MessageFinding | UnfinishedFinding | SlowFinding

interface AboutOperation {
  readonly group: string
  readonly sequence: number
  /** For example `allReduce`. */
  readonly name: string
  readonly operation: string
  readonly label?: string
}

/** A collective that some ranks have entered and others have not. */
export interface MissingFinding extends AboutOperation {
  readonly kind: 'missing'
  readonly missing: readonly RankPlace[]
  /** The ranks that have entered it and not left it. */
  readonly waiting: readonly number[]
  /** The members that left no dump. */
  readonly unknown: readonly number[]
}

/** What a rank did instead. */
export interface RankPlace {
  readonly rank: number
  /** Its last collective of the group, human-readable; undefined: none so far. */
  readonly last: string | undefined
  /** The operation that it was in, also of another group, or a message; undefined: none. */
  readonly running: string | undefined
  /** It called the operation, but only after the group had failed. */
  readonly late: boolean
}

/** Ranks that ran different operations at the same position. */
export interface MismatchFinding {
  readonly kind: 'mismatch'
  readonly group: string
  readonly sequence: number
  /** Each operation, with the ranks that ran it and the places where they called it. */
  readonly calls: readonly {
    readonly operation: string
    readonly label?: string
    readonly ranks: readonly number[]
    readonly sites: readonly string[]
  }[]
}

/** A message that one end waits for, or that was not received. */
export interface MessageFinding {
  readonly kind: 'message'
  readonly group: string
  readonly rank: number
  readonly name: string
  readonly operation: string
  readonly label?: string
  /** Undefined: a receive from any rank. */
  readonly peer: number | undefined
  readonly tag: number
  /** What the other end was doing; undefined: it left no dump. */
  readonly place: RankPlace | undefined
}

/** A collective that all ranks have entered and not all have left. */
export interface UnfinishedFinding extends AboutOperation {
  readonly kind: 'unfinished'
  readonly running: readonly number[]
  readonly unknown: readonly number[]
  /** The codes of its errors, if it failed. */
  readonly errors: readonly string[]
  /** The ranks for whose messages they wait. */
  readonly waitsFor: readonly number[]
}

/** A rank that comes last to the collectives of its group. */
export interface SlowFinding {
  readonly kind: 'slow'
  readonly group: string
  readonly rank: number
  /** The number of collectives that all ranks of its host have entered. */
  readonly collectives: number
  /** The number of those that it entered last. */
  readonly last: number
  /** How much later than the first rank it entered those, in milliseconds: the median. */
  readonly behind: number
}

/** The finding as a sentence. */
export function describeFinding(finding: FlightFinding): string {
  switch (finding.kind) {
    case 'missing':
      return describeMissing(finding)
    case 'mismatch': {
      const calls = finding.calls.map(({ ranks, operation, label, sites }) => {
        const where = sites.length === 0 ? '' : ` called at ${sites.join(' and ')}`
        return `${ranksText(ranks)} ran ${operation}${inBrackets(label)}${where}`
      })
      return `mismatch at #${finding.sequence} of group ${finding.group}: ${calls.join('; ')}`
    }
    case 'message':
      return describeMessage(finding)
    case 'unfinished': {
      const { name, sequence, label, group, running, errors, waitsFor } = finding
      const how = errors.length === 0 ? 'is not finished' : `failed (${errors.join(', ')})`
      const whom = waitsFor.length === 0 ? '' : `, waiting for messages of ${ranksText(waitsFor)}`
      return `${name} #${sequence}${inBrackets(label)} of group ${group} ${how} on ${ranksText(running)}${whom}; all ranks had entered it`
    }
    case 'slow': {
      const { rank, group, collectives, last, behind } = finding
      return `rank ${rank} is slow: it came last to ${last} of ${collectives} collectives of group ${group}, by ${behind.toFixed(1)} ms (median)`
    }
  }
}

function describeMessage(finding: MessageFinding): string {
  const { rank, name, operation, label, peer, tag, group, place } = finding
  const other = peer === undefined ? 'any rank' : `rank ${peer}`
  const what = `${operation.replace('send/recv', name)} ${name === 'send' ? 'to' : 'from'} ${other}`
  const waits = `rank ${rank} waits in ${what}, tag ${tag}${inBrackets(label)} of group ${group}`
  if (peer === undefined) return waits
  return `${waits}; ${place === undefined ? `rank ${peer} left no record` : `rank ${peer}: ${doing(place, group)}`}`
}

/** `rank 2 never entered allReduce #17 (layer4.weight) of group world; last op ...; waiting for it: 0, 1` */
function describeMissing(finding: MissingFinding): string {
  const { name, sequence, label, group, missing, waiting, unknown } = finding
  const operation = `${name} #${sequence}${inBrackets(label)} of group ${group}`
  const parts = missing.map((place) => {
    const instead = place.late
      ? 'it came only after the group had failed'
      : doing(place, group).replace(/^it /, '')
    return `rank ${place.rank} never entered ${operation}; ${instead}`
  })
  if (unknown.length > 0) {
    const it = parts.length > 0 ? 'it' : operation
    parts.push(`${ranksText(unknown)} left no record, so it is unknown whether it entered ${it}`)
  }
  return `${parts.join('; ')}; waiting for ${missing.length + unknown.length > 1 ? 'them' : 'it'}: ${formatRankList(waiting)}`
}

function doing({ last, running }: RankPlace, group: string): string {
  const before = last === undefined ? `no op of group ${group} so far` : `last op ${last}`
  if (running === undefined || running === last) return before
  return `${before}, now in ${running}`
}

function inBrackets(label: string | undefined): string {
  return label === undefined ? '' : ` (${label})`
}

function ranksText(ranks: readonly number[]): string {
  return formatRanks(ranks)
}
