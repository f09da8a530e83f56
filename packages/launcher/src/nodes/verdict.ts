import { ranksOf, worldSizeOf, type NodePlan, type NodeReport, type Verdict } from '../job/nodes.ts'
import { describeFailure, describeLostNode, type LostNode } from '../report/failure.ts'
import { findRootCause } from '../report/root-cause.ts'

export interface Evidence {
  readonly plan: NodePlan
  /** Those of all nodes that are still there. */
  readonly reports: readonly NodeReport[]
  readonly lost: readonly LostNode[]
  readonly restartCount: number
  readonly maxRestarts: number
}

/**
 * Judges one attempt by the reports of all nodes. A rank that failed by itself takes precedence over a
 * host that is gone, and that over errors that only follow from either.
 */
export function judge(evidence: Evidence): Verdict {
  const { plan, reports, lost, restartCount, maxRestarts } = evidence
  const outcomes = reports.flatMap((report) => report.outcomes)
  const findings = reports.flatMap(({ facts }) => facts.findings ?? [])
  const cause = findRootCause(outcomes, findings)
  const missing = lost.flatMap(({ node }) => ranksOf(plan, node))
  const interruption = reports.find((report) => report.interruption !== undefined)?.interruption
  if (interruption !== undefined) return { kind: 'interrupted', exitCode: interruption.exitCode }
  const [firstLost] = lost
  if (firstLost !== undefined && cause?.presumed !== false) {
    return {
      kind: 'lost',
      failure: describeLostNode(firstLost, ranksOf(plan, firstLost.node), outcomes),
    }
  }
  if (cause === undefined) return { kind: 'success' }
  const { rank } = cause.culprit
  const { facts } = reports.find((report) => report.outcomes.some((of) => of.rank === rank))!
  const failure = describeFailure(cause, outcomes, facts, worldSizeOf(plan), missing)
  // No other host can take the place of one that is gone.
  if (restartCount >= maxRestarts || lost.length > 0) return { kind: 'failure', failure }
  return { kind: 'failure', failure, restart: { number: restartCount + 1, of: maxRestarts } }
}
