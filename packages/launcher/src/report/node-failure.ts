import { formatRankList } from '../args/rank-list.ts'
import { describeOthers } from './failure.ts'
import type { RankOutcome } from './outcome.ts'
import { reportText } from './failure-text.ts'

/** A host that vanished from a running job. */
export interface LostNode {
  readonly node: number
  readonly host: string
  readonly address: string
  /** `its launcher has ended`, `no word from it for 30 s`. */
  readonly reason: string
}

/** A job that failed because a host is gone: for the report on screen and for JSON. */
export interface NodeFailure extends LostNode {
  readonly ranks: readonly number[]
  readonly others: readonly string[]
  readonly jobExitCode: number
}

export function describeLostNode(
  lost: LostNode,
  ranks: readonly number[],
  outcomes: readonly RankOutcome[],
): NodeFailure {
  return { ...lost, ranks, others: describeOthers(outcomes, undefined), jobExitCode: 1 }
}

export function nodeFailureText(failure: NodeFailure, colour: boolean): string {
  const { node, host, address, reason, ranks, others, jobExitCode } = failure
  const which = `${ranks.length === 1 ? 'rank' : 'ranks'} ${formatRankList(ranks)}`
  return reportText(
    [
      { title: 'first cause', lines: [`node ${node} (${which}) is gone: ${reason}`] },
      { title: 'host', lines: [`${host}, ${address}`] },
      { title: 'others', lines: others },
    ],
    jobExitCode,
    colour,
  )
}
