import { constants } from 'node:os'
import type { FlightFinding, MismatchFinding } from './flight-findings.ts'
import { findAbsent, type Absence } from './absence.ts'
import { failedAt, ownEnd, succeeded, wasStopped } from './outcome.ts'
import type { RankOutcome } from '../protocol/nodes.ts'

/** The rank that brought the job down. */
export interface RootCause {
  readonly culprit: RankOutcome
  /** The rank that still needed the culprit, if that left early (with exit code 0, or stopped on its way). */
  readonly witness?: RankOutcome
  /** How the culprit kept others waiting, if that is what it did. */
  readonly absence?: Absence
  /** True when only consequences are known, and the cause was not seen on this host. */
  readonly presumed: boolean
}

/**
 * Finds the first cause of a failed job; undefined if no rank failed.
 *
 * Evidence takes precedence over time. In this order: a crash, or an error of the rank's own; an error of
 * its own in a rank that was stopped before it could die of it; an early exit that other ranks report; a
 * rank for which others waited until they timed out; the earliest of the errors that only follow from
 * another rank's failure. Where operations differ, it is the rank that differs from most others.
 *
 * @param findings - what the flight records of the ranks show together
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
    inOrder.find((outcome) => failedBeforeStop(outcome) && !isVictim(outcome))
  if (own?.error?.code === 'ERR_TSR_MISMATCH') {
    return { culprit: findOdd(outcomes, findings) ?? own, presumed: false }
  }
  if (own !== undefined) return { culprit: own, presumed: false }
  return (
    findEarlyLeave(outcomes, failures) ?? blameAbsent(outcomes, findings) ?? presume(failures[0])
  )
}

function findEarlyLeave(
  outcomes: readonly RankOutcome[],
  failures: readonly RankOutcome[],
): RootCause | undefined {
  for (const witness of failures) {
    const { code, peers = [] } = witness.error ?? {}
    // A rank that has left the group may still have been ending when it was stopped.
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

function blameAbsent(
  outcomes: readonly RankOutcome[],
  findings: readonly FlightFinding[],
): RootCause | undefined {
  const absent = findAbsent(outcomes, findings)
  return absent && { ...absent, presumed: false }
}

/** The rank that ran another operation than most. */
function findOdd(
  outcomes: readonly RankOutcome[],
  findings: readonly FlightFinding[],
): RankOutcome | undefined {
  const mismatch = findings.find((finding) => finding.kind === 'mismatch')
  const odd = mismatch === undefined ? undefined : minorityOf(mismatch)
  return outcomes.find(({ rank }) => rank === odd)
}

function minorityOf({ calls }: MismatchFinding): number | undefined {
  const [fewest, next] = calls.map(({ ranks }) => ranks).sort((a, b) => a.length - b.length)
  return fewest!.length < (next?.length ?? 0) ? fewest![0] : undefined
}

function presume(culprit: RankOutcome | undefined): RootCause | undefined {
  return culprit === undefined ? undefined : { culprit, presumed: true }
}

function failedBeforeStop({ error, stoppedAt }: RankOutcome): boolean {
  return error !== undefined && error.at < stoppedAt
}

/** The codes of errors about a rank that left too early. */
const leaves = ['ERR_TSR_PEER_LEFT', 'ERR_TSR_GROUP_LEFT']

/** Whether the rank failed because of another one: it lost a peer, a peer left, or it waited in vain. */
function isVictim({ error, heapExhausted }: RankOutcome): boolean {
  if (heapExhausted || error === undefined) return false
  return error.consequence || error.wait !== undefined || leaves.includes(error.code ?? '')
}

/**
 * The exit code of a failed job: that of the culprit, or 128 + n for signal n. For a culprit that left
 * with exit code 0 it is that of the rank that still needed it.
 */
export function exitCodeOf({ culprit, witness }: RootCause): number {
  const { exitCode, signal } = ownEnd(witness ?? culprit)
  if (signal !== null) return 128 + constants.signals[signal]
  return exitCode ?? 1
}
