import { describeFailure } from '../report/failure.ts'
import { describeLostNode, type LostNode } from '../report/failure-text.ts'
import { findRootCause } from '../report/root-cause.ts'
import { ranksOf, worldSizeOf, type NodePlan } from '../job/nodes.ts'
import type { NodeReport, Verdict } from '../job/nodes.ts'

export interface Evidence {
  readonly plan: NodePlan
  /** Of all nodes that are still there. */
  readonly reports: readonly NodeReport[]
  readonly lost: readonly LostNode[]
  readonly restartCount: number
  readonly maxRestarts: number
}

/**
 * Judges one life of a job by what all nodes report: a rank that failed by itself counts before a
 * host that is gone, and that before errors which only follow from either.
 */
export function judge(evidence: Evidence): Verdict {
  const { plan, reports, lost, restartCount, maxRestarts } = evidence
  const outcomes = reports.flatMap((report) => report.outcomes)
  const cause = findRootCause(outcomes)
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
  const { circumstances } = reports.find((report) =>
    report.outcomes.some((of) => of.rank === rank),
  )!
  const failure = describeFailure(cause, outcomes, circumstances, worldSizeOf(plan), missing)
  // Nobody can take the place of a host that is gone.
  if (restartCount >= maxRestarts || lost.length > 0) return { kind: 'failure', failure }
  return { kind: 'failure', failure, restart: { number: restartCount + 1, of: maxRestarts } }
}
