import { exitCodeAt, ranksOf, worldSizeOf } from '../job/nodes.ts'
import { exitCodeOf, TRY_AGAIN } from '../job/failure/exit-codes.ts'
import { describeFailure, describeOthers } from '../job/failure/failure.ts'
import type { NodePlan, NodeReport, Verdict, LostNode } from '../protocol/nodes.ts'
import { succeeded } from '../job/failure/outcome.ts'
import { findCauses } from '../job/failure/flight-merge.ts'
import { findRootCause } from '../job/failure/root-cause.ts'

/** Milliseconds after which an attempt counts as healthy. */
const HEALTHY = 3_600_000

/** Counts restarts. After a healthy attempt, the count starts again at zero. */
export function countRestarts() {
  let beganAt = 0
  let used = 0
  return {
    begin(): void {
      beganAt = performance.now()
    },
    /** The number of restarts that count against `--max-restarts` at the end of an attempt. */
    get used(): number {
      if (performance.now() - beganAt >= HEALTHY) used = 0
      return used
    },
    /** Counts a restart if the outcome of the attempt is a restart. */
    take(verdict: Verdict): Verdict {
      if (verdict.kind === 'failure' && verdict.restart !== undefined) used++
      return verdict
    },
  }
}

interface Evidence {
  readonly plan: NodePlan
  /** The reports of all nodes that are still present. */
  readonly reports: readonly NodeReport[]
  readonly lost: readonly LostNode[]
  /** Whether a node has left voluntarily, so that failed ranks did not end the attempt. */
  readonly hasLeft?: boolean
  readonly restarts: number
  readonly maxRestarts: number
  /** The reason for stopping the nodes, if nodes may join or leave before the next attempt. */
  readonly change?: string | undefined
  /** Whether the job continues without lost nodes. */
  readonly isElastic?: boolean
}

/**
 * Decides the outcome of an attempt from the reports of all nodes. In order of precedence, the cause of a
 * failure is a rank that failed by itself, a lost host, or a rank that failed because of another rank.
 */
export function judge({
  plan,
  reports,
  lost,
  restarts,
  maxRestarts,
  change,
  hasLeft,
  isElastic = false,
}: Evidence): Verdict {
  const outcomes = reports.flatMap((report) => report.outcomes)
  // The flight records of a lost host are unknown.
  const here = reports.flatMap(({ nodeRank }) => ranksOf(plan, nodeRank))
  const dumps = reports.flatMap(({ flight }) => flight)
  const findings = findCauses(dumps, here)
  const cause = findRootCause(outcomes, findings)
  const missing = lost.flatMap(({ node }) => ranksOf(plan, node))
  const interruption = reports.find((report) => report.interruption !== undefined)?.interruption
  if (interruption !== undefined) {
    return { kind: 'interrupted', exitCode: exitCodeAt(interruption, isElastic) }
  }
  const [firstLost] = lost
  if (firstLost !== undefined && (hasLeft === true || cause?.presumed !== false)) {
    if (isElastic) {
      const each = lost.map(({ node, host, reason }) => `node ${node} (${host}) is gone: ${reason}`)
      return { kind: 'change', reason: each.join('; ') }
    }
    return {
      kind: 'lost',
      failure: {
        runId: plan.runId,
        ...firstLost,
        ranks: ranksOf(plan, firstLost.node),
        others: describeOthers(outcomes),
        jobExitCode: TRY_AGAIN,
      },
    }
  }
  const isOver = outcomes.every(succeeded)
  if (change !== undefined && !isOver && cause?.presumed !== false) {
    return { kind: 'change', reason: change }
  }
  if (cause === undefined) return { kind: 'success' }
  const { rank } = cause.culprit
  const { facts } = reports.find((report) => report.outcomes.some((of) => of.rank === rank))!
  const seen = { findings, worldSize: worldSizeOf(plan), missing }
  const failure = {
    runId: plan.runId,
    ...describeFailure(cause, outcomes, facts, seen),
    jobExitCode: exitCodeOf(cause, facts.memory),
  }
  // In a job of fixed size, no other host can replace a lost one.
  const isShort = lost.length > 0 && !isElastic
  if (restarts >= maxRestarts || isShort) return { kind: 'failure', failure }
  return { kind: 'failure', failure, restart: { number: restarts + 1, of: maxRestarts } }
}

export function goesOn(verdict: Verdict): boolean {
  return verdict.kind === 'change' || (verdict.kind === 'failure' && verdict.restart !== undefined)
}
