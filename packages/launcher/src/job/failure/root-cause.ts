import { formatRanks, formatSeconds } from '@tsrun/core'
import {
  type FlightFinding,
  inBrackets,
  isAbsentIn,
  type RankPlace as FlightPlace,
} from './flight-findings.ts'
import { failedAt, succeeded, wasStopped } from './outcome.ts'
import type { RankOutcome } from '../../protocol/nodes.ts'
import type { TimedOutWait } from '../../protocol/control.ts'

/** The rank that caused the job to fail. */
export interface RootCause {
  readonly culprit: RankOutcome
  /** The rank whose error reveals the culprit, for example by a lost connection to the culprit. */
  readonly witness?: RankOutcome
  /** How the culprit kept other ranks waiting; undefined if no rank waited for the culprit. */
  readonly absence?: Absence
  /** True if only consequences are known, because the cause was not seen on this host. */
  readonly presumed: boolean
}

/**
 * Finds the first cause of a failed job; undefined if no rank failed.
 *
 * Stronger evidence takes precedence over earlier failures. In decreasing order of strength:
 * 1. a crash, or an error that no other rank caused;
 * 2. such an error in a rank that was stopped before it exited;
 * 3. an early exit that other ranks report;
 * 4. a rank for which others waited until they timed out;
 * 5. the rank to which a connection was lost, else the rank with the earliest error.
 * If operations differ, the culprit is the rank that differs from most others.
 *
 * @param findings - from the flight records of all ranks
 */
export function findRootCause(
  outcomes: readonly RankOutcome[],
  findings: readonly FlightFinding[] = [],
): RootCause | undefined {
  const inOrder = outcomes
    .filter((outcome) => !succeeded(outcome))
    .sort((a, b) => failedAt(a) - failedAt(b))
  const failures = inOrder.filter((outcome) => !wasStopped(outcome))
  const own =
    failures.find((outcome) => !isVictim(outcome)) ??
    // Otherwise, find an uncaught error that occurred before the rank was stopped.
    inOrder.find((outcome) => {
      const { error, stoppedAt = Infinity } = outcome
      return error !== undefined && error.at < stoppedAt && !isVictim(outcome)
    })
  if (own?.error?.code === 'ERR_TSR_MISMATCH') {
    return { culprit: findOdd(outcomes, findings) ?? own, presumed: false }
  }
  if (own !== undefined) return { culprit: own, presumed: false }
  return (
    findEarlyLeave(outcomes, failures) ??
    findAbsent(outcomes, findings) ??
    presume(outcomes, failures)
  )
}

function findEarlyLeave(
  outcomes: readonly RankOutcome[],
  failures: readonly RankOutcome[],
): RootCause | undefined {
  for (const witness of failures) {
    const { code, peers = [] } = witness.error ?? {}
    // A rank that has left the group may still have been exiting when it was stopped.
    const culprit = outcomes.find(
      (outcome) =>
        peers.includes(outcome.rank) &&
        (succeeded(outcome) ||
          (code === 'ERR_TSR_PEER_LEFT' && wasStopped(outcome)) ||
          (code === 'ERR_TSR_GROUP_LEFT' && outcome.error === undefined)),
    )
    if (culprit !== undefined) return { culprit, witness, presumed: false }
  }
  return undefined
}

function findOdd(
  outcomes: readonly RankOutcome[],
  findings: readonly FlightFinding[],
): RankOutcome | undefined {
  const mismatch = findings.find((finding) => finding.kind === 'mismatch')
  const callers = mismatch?.calls.map(({ ranks }) => ranks) ?? []
  const [fewest = [], next = []] = callers.sort((a, b) => a.length - b.length)
  return fewest.length < next.length ? outcomes.find(({ rank }) => rank === fewest[0]) : undefined
}

function presume(
  outcomes: readonly RankOutcome[],
  failures: readonly RankOutcome[],
): RootCause | undefined {
  const [first] = failures
  if (first === undefined) return undefined
  // Follow the reported peers to the rank that lost a connection. That rank may have ended last.
  const seen = new Set<RankOutcome>()
  let witness: RankOutcome | undefined = first
  while (witness !== undefined && !seen.has(witness)) {
    seen.add(witness)
    const { error }: RankOutcome = witness
    const isNamed = ({ rank }: RankOutcome): boolean => error?.peers.includes(rank) === true
    if (error?.code === 'ERR_TSR_PEER_LOST') {
      const culprit = outcomes.find(isNamed)
      if (culprit !== undefined) return { culprit, witness, presumed: true }
    }
    witness = error?.code === 'ERR_TSR_PEER_FAILED' ? failures.find(isNamed) : undefined
  }
  return { culprit: first, presumed: true }
}

/** Whether another rank caused the failure: a peer was lost or left, or the wait timed out. */
function isVictim({ error, heapExhausted }: RankOutcome): boolean {
  return !heapExhausted && error !== undefined && error.distance > 0
}

/** Describes a rank that others waited for until they timed out. */
interface Absence {
  /** `never entered allReduce #17 (head) of group world, in which ranks 0, 2-3 waited 30.0 s` */
  readonly what: string
  readonly last: string
}

type Waiting = RankOutcome & {
  readonly error: { readonly wait: TimedOutWait }
}

/**
 * Finds the rank that others waited for when their operations timed out. Follows the chain of waits in
 * the errors, the flight records and the status page to a rank that does not wait.
 *
 * @returns the absent rank, and a rank whose time-out is evidence of the absence; undefined if nothing
 *   timed out, or if the waits form a cycle and no rank misses a collective
 */
function findAbsent(outcomes: readonly RankOutcome[], findings: readonly FlightFinding[]) {
  const waiting = outcomes
    .filter((outcome): outcome is Waiting => outcome.error?.wait !== undefined)
    .sort((a, b) => a.error.at - b.error.at)
  const [witness] = waiting
  if (witness === undefined) return undefined
  const waits = collectWaits(outcomes, waiting, findings)
  const ends = waiting.flatMap(({ rank }) => followWaits(rank, waits))
  const suspects = outcomes.filter(({ rank, place }) => ends.includes(rank) || place?.isSuspended)
  const missing = findings.flatMap((finding) => (finding.kind === 'missing' ? finding.missing : []))
  const culprit =
    suspects.sort((a, b) => suspicion(b) - suspicion(a))[0] ??
    outcomes.find(({ rank }) => missing.some((place) => place.rank === rank))
  if (culprit === undefined) return undefined
  const first = waiting.find(({ rank }) => waits.get(rank)?.has(culprit.rank) === true) ?? witness
  const absence = describeAbsence(culprit, first, waiting, findings)
  return { culprit, witness: first, absence, presumed: false }
}

function collectWaits(
  outcomes: readonly RankOutcome[],
  waiting: readonly Waiting[],
  findings: readonly FlightFinding[],
): ReadonlyMap<number, ReadonlySet<number>> {
  const waits = new Map<number, Set<number>>()
  const add = (from: readonly number[], to: readonly number[]): void => {
    for (const rank of from) waits.set(rank, new Set([...(waits.get(rank) ?? []), ...to]))
  }
  for (const { rank, error } of waiting) {
    add([rank], error.wait.peers)
    for (const outcome of outcomes) {
      if (isBehind(outcome, error.wait)) add([rank], [outcome.rank])
      // Assume that busy ranks wait for this rank: a rank that tsrun stops has no time to record its wait.
      if (isBusy(outcome, error.wait)) add([outcome.rank], [rank])
    }
  }
  for (const finding of findings) {
    if (finding.kind === 'missing') {
      // The status page may show that a rank without a flight record has entered the collective.
      const there = finding.unknown.filter((rank) => {
        const place = outcomes.find((outcome) => outcome.rank === rank)?.place
        return place?.group === finding.group && place.sequence >= finding.sequence
      })
      const unknown = finding.unknown.filter((rank) => !there.includes(rank))
      const absent = [...finding.missing.map(({ rank }) => rank), ...unknown]
      if (absent.length > 0) add([...finding.waiting, ...there], absent)
      else add(finding.waiting, there)
    }
    if (finding.kind === 'message' && finding.peer !== undefined) {
      add([finding.rank], [finding.peer])
    }
  }
  return waits
}

/** Whether the status page shows that this rank has not reached the collective that timed out. */
function isBehind({ error, place }: RankOutcome, { operation, group }: TimedOutWait): boolean {
  const sequence = sequenceOf(operation)
  if (error !== undefined || sequence === undefined || place === undefined) return false
  return place.group === group && place.sequence < sequence
}

/** Whether the status page shows this rank in an operation while another rank waited for its message. */
function isBusy({ rank, place }: RankOutcome, { operation, peers }: TimedOutWait): boolean {
  const isMessage = sequenceOf(operation) === undefined && peers.includes(rank)
  return isMessage && place?.state === 'operation' && !place.isSuspended
}

function sequenceOf(operation: string): number | undefined {
  const digits = /#(\d+)$/.exec(operation)?.[1]
  return digits === undefined ? undefined : Number(digits)
}

/** The ends of the chains of waits that begin at `start`: ranks that do not wait themselves. */
function followWaits(start: number, waits: ReadonlyMap<number, ReadonlySet<number>>): number[] {
  const seen = new Set([start])
  for (const rank of seen) for (const next of waits.get(rank) ?? []) seen.add(next)
  return [...seen].filter((rank) => (waits.get(rank)?.size ?? 0) === 0)
}

function suspicion({ error, place }: RankOutcome): number {
  if (place?.isSuspended === true) return 3
  if (error !== undefined) return 0
  return place?.state === 'operation' ? 1 : 2
}

function describeAbsence(
  culprit: RankOutcome,
  { error: { wait } }: Waiting,
  waiting: readonly Waiting[],
  findings: readonly FlightFinding[],
): Absence {
  const { rank: absent, place } = culprit
  const finding = findings.find((each) => isAbsentIn(each, absent))
  const known = finding?.missing.find(({ rank }) => rank === absent)
  const alike = waiting.filter(({ error }) => error.wait.group === wait.group)
  const ranks = finding?.waiting ?? alike.map(({ rank }) => rank).filter((rank) => rank !== absent)
  const { label, group = '' } = finding ?? wait
  const name = finding === undefined ? wait.operation : `${finding.name} #${finding.sequence}`
  const operation = `${name}${inBrackets(label)} of group ${group}`
  const waited = formatSeconds(wait.milliseconds / 1000)
  const who = formatRanks(ranks)
  const last = describeLast(culprit, known)
  if (wait.operation === 'initProcessGroup') {
    return { what: `never joined the job, for which ${who} waited ${waited}`, last }
  }
  const sequence = sequenceOf(wait.operation)
  const { group: at, sequence: reached } = place ?? {}
  const isThere = known === undefined && at === wait.group && reached === sequence
  const how =
    sequence === undefined && known === undefined
      ? 'did not answer in'
      : isThere
        ? 'did not continue in'
        : 'never entered'
  return { what: `${how} ${operation}, in which ${who} waited ${waited}`, last }
}

/** A sentence such as `Its last operation was …, and it has been computing for 30 s.` */
function describeLast({ place }: RankOutcome, known: FlightPlace | undefined): string {
  const published =
    place?.operation === undefined
      ? undefined
      : `${place.operation} #${place.sequence} of group ${place.group ?? ''}`
  const time = place === undefined ? '' : ` for ${formatSeconds(place.milliseconds / 1000)}`
  if (place?.isSuspended === true) {
    const where = published === undefined ? '' : ` Its last operation was ${published}.`
    return `The process is stopped, by SIGSTOP or a debugger.${where}`
  }
  if (known?.late === true) return 'It came only after the group had failed.'
  if (known?.running !== undefined && known.running !== known.last) {
    const before = known.last === undefined ? 'none before it' : `${known.last} before it`
    return `It was in ${known.running} instead, and in ${before}.`
  }
  const last = known?.last ?? published
  if (last === undefined) {
    return place === undefined || place.state === 'starting'
      ? 'It had not joined the job.'
      : `It had run no operation, and had been computing or waiting${time}.`
  }
  if (place?.state === 'operation') return `It was in ${published ?? last}${time}.`
  return `Its last operation was ${last}, and it had been computing or waiting${time} since.`
}
