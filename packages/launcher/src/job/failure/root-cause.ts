import type { FlightFinding } from './flight-findings.ts'
import { findAbsent, type Absence } from './absence.ts'
import { failedAt, succeeded, wasStopped } from './outcome.ts'
import type { RankOutcome } from '../../protocol/nodes.ts'

/** The rank that caused the job to fail. */
export interface RootCause {
  readonly culprit: RankOutcome
  /** The rank that still needed the culprit, which left early or whose connection was lost. */
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
 * 5. the earliest error that another rank caused, or the rank that was lost in it.
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
    // An uncaught error that precedes the stop.
    inOrder.find((outcome) => {
      const { error, stoppedAt } = outcome
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
  // Follow reports of failures to the rank that lost a connection. It may have ended after the others.
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
