import { constants } from 'node:os'
import { failedAt, succeeded, wasStopped, type RankOutcome } from './outcome.ts'

/** The rank that brought the job down. */
export interface RootCause {
  readonly culprit: RankOutcome
  /** The rank that still needed the culprit, if that left early (with exit code 0, or stopped on its way). */
  readonly witness?: RankOutcome
  /** True when only consequences are known, and the cause was not seen on this host. */
  readonly presumed: boolean
}

/**
 * Finds the first cause of a failed job; undefined if no rank failed.
 *
 * Evidence takes precedence over time. In this order: a crash, or an error of the rank's own; an error of
 * its own in a rank that was stopped before it could die of it; an early exit that other ranks report;
 * the earliest of the errors that only follow from another rank's failure.
 */
export function findRootCause(outcomes: readonly RankOutcome[]): RootCause | undefined {
  const inOrder = outcomes
    .filter((outcome) => !succeeded(outcome))
    .sort((a, b) => failedAt(a) - failedAt(b))
  const failures = inOrder.filter((outcome) => !wasStopped(outcome))
  const own =
    failures.find((outcome) => !isVictim(outcome)) ??
    inOrder.find((outcome) => failedBeforeStop(outcome) && !isVictim(outcome))
  if (own !== undefined) return { culprit: own, presumed: false }
  return findEarlyLeave(outcomes, failures) ?? presume(failures[0])
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
        (succeeded(outcome) || (code === 'ERR_TSR_PEER_LEFT' && wasStopped(outcome))),
    )
    if (culprit !== undefined) return { culprit, witness, presumed: false }
  }
  return undefined
}

function presume(culprit: RankOutcome | undefined): RootCause | undefined {
  return culprit === undefined ? undefined : { culprit, presumed: true }
}

function failedBeforeStop({ error, stoppedAt }: RankOutcome): boolean {
  return error !== undefined && error.at < stoppedAt
}

/** Whether the rank failed because of another one: it lost a peer, or a peer left. */
function isVictim({ error, heapExhausted }: RankOutcome): boolean {
  if (heapExhausted || error === undefined) return false
  return error.consequence || error.code === 'ERR_TSR_PEER_LEFT'
}

/**
 * The exit code of a failed job: that of the culprit, or 128 + n for signal n. For a culprit that left
 * with exit code 0 it is that of the rank that still needed it.
 */
export function exitCodeOf({ culprit, witness }: RootCause): number {
  const { exitCode, signal } = witness ?? culprit
  if (signal !== null) return 128 + constants.signals[signal]
  return exitCode ?? 1
}
