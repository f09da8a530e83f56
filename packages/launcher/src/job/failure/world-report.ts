import { host, isTsrError } from '@tsrun/core'
import type { FailedWorld, FlightDump, RankEnd } from '@tsrun/distributed/record'
import { describeThrown, withCause } from '../../protocol/describe-error.ts'
import type { RankOutcome, RankPlace } from '../../protocol/nodes.ts'
import { failureText } from './failure-text.ts'
import { describeFailure } from './failure.ts'
import { findCauses } from './flight-merge.ts'
import { findRootCause } from './root-cause.ts'

/** The exit code after SIGKILL, which is signal 9 on all systems. */
const KILLED = 128 + 9

/**
 * Formats the report of `tsrun` about a world within one thread (`runWorld`), as if each rank had been a
 * process: an error ends it with exit code 1, the fault `lose` counts as SIGKILL, and ranks that end
 * without an error after the first failure count as stopped. Works in a web page. Errors have no stacks.
 *
 * @param world - the argument of the `onErrors` callback of `runWorld`
 * @returns lines of at most 80 characters, except for errors; '' if no rank failed
 */
export function worldReport({ startedAt, ends, records }: FailedWorld): string {
  const failures = ends.filter((end) => hasFailed(end))
  const stoppedAt = Math.min(...failures.map(({ at }) => at))
  const outcomes = ends.map((end, rank): RankOutcome => ({
    ...outcomeOf(end, stoppedAt),
    startedAt,
    place: placeOf(records[rank]!, stoppedAt),
  }))
  // A killed process leaves no record.
  const left = records.filter((_, rank) => !ends[rank]!.isLost)
  const findings = findCauses(
    left,
    ends.map(({ rank }) => rank),
  )
  const cause = findRootCause(outcomes, findings)
  if (cause === undefined) return ''
  const { signal } = cause.witness ?? cause.culprit
  // The ranks share one thread, so there is no count of out-of-memory kills.
  const facts = { host: host.name(), memory: {} }
  const failure = {
    ...describeFailure(cause, outcomes, facts, { findings }),
    jobExitCode: signal === null ? 1 : KILLED,
  }
  return failureText(failure, false)
}

function hasFailed(end: RankEnd): boolean {
  return 'error' in end
}

function outcomeOf(end: RankEnd, stoppedAt: number): Omit<RankOutcome, 'startedAt'> {
  const { rank, at, error, isLost } = end
  const isStopped = !hasFailed(end) && at >= stoppedAt
  const usual = {
    rank,
    pid: host.processId,
    exitCode: 0,
    signal: null,
    endedAt: at,
    stderrTail: [],
    heapExhausted: false,
  }
  if (isLost) return { ...usual, exitCode: null, signal: 'SIGKILL' }
  if (isStopped) {
    return { ...usual, exitCode: null, signal: 'SIGTERM', stopSignal: 'SIGTERM', stoppedAt }
  }
  if (!hasFailed(end)) return usual
  const described = describeThrown(error, print)
  return { ...usual, exitCode: 1, error: { kind: 'error', at, silent: true, ...described } }
}

/** Prints an error like Node, but without the stack. */
function print(thrown: unknown): string {
  const { name, message } = Object(thrown) as Record<string, unknown>
  const text = typeof message === 'string' ? `${String(name)}: ${message}` : String(thrown)
  return isTsrError(thrown) ? withCause(text, thrown, print) : text
}

/** Returns what a rank was doing at a time, in the form of an entry of the status page. */
function placeOf({ header, entries }: FlightDump, now: number): RankPlace | undefined {
  const entry = entries.findLast(({ posted }) => posted <= now)
  if (entry === undefined) return undefined
  const { operation, sequence, group, posted, completed } = entry
  const isOver = completed > 0 && completed <= now
  return {
    state: isOver ? 'running' : 'operation',
    operation,
    sequence,
    group: header.groups.find(({ id }) => id === group)?.name,
    milliseconds: now - (isOver ? completed : posted),
    isSuspended: false,
  }
}
