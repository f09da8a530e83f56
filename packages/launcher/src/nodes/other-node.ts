import { once } from 'node:events'
import type { Job, JobContext } from '../job/job.ts'
import { isLeave, type Conclusion, type Nodes } from '../job/nodes.ts'
import type { Joined } from './join.ts'
import { haltAtFailure, keys, packReport, receive, shareInterrupts, tell } from './messages.ts'
import {
  type NodeFacts,
  type NodeReport,
  type Verdict,
  type LostNode,
  planWith,
  verdictMessage,
} from '../protocol/nodes.ts'
import { goesOn, judge } from './verdict.ts'
import { HEARTBEAT, monitorHeartbeats } from './waiting.ts'

/** Creates a node other than node 0. It reports to node 0 and receives its verdicts. */
export function createOtherNode(
  { placement, rendezvous: { hostTimeout } }: Job,
  { store, id, invitation }: Joined,
  { announcer, interrupts }: JobContext,
): Nodes {
  let { plan } = invitation
  const isElastic = placement.minNodes < placement.nnodes
  /** Aborted when node 0 is lost. */
  const alone = new AbortController()
  let isClosed = false
  const find = (): NodeFacts => plan.nodes.find((node) => node.id === id)!

  const lose = (reason: string): void => {
    if (isClosed) return
    const { host, address } = plan.nodes[0]!
    alone.abort({ node: 0, host, address, reason } satisfies LostNode)
  }

  const nodeZero = plan.nodes[0]!
  const monitor = monitorHeartbeats(announcer, hostTimeout, {
    node: () => nodeZero,
    silence: 'has not answered',
    consequence: 'the job fails',
    onLost: () => {
      lose(`it did not answer for ${hostTimeout / 1000} s`)
    },
  })
  let answered = true
  const heartbeat = setInterval(() => {
    monitor.tick()
    if (!answered) return
    answered = false
    const heard = (): void => {
      answered = true
      monitor.heard()
    }
    store.set(keys.heartbeat(id), '').then(heard, () => undefined)
  }, HEARTBEAT)
  shareInterrupts(store, find(), interrupts, isElastic).catch(() => undefined)

  const conclude = async (
    restartCount: number,
    report: NodeReport,
    verdict: Promise<Verdict>,
  ): Promise<Conclusion> => {
    const { interruption } = report
    if (isElastic && isLeave(interruption)) {
      const { exitCode } = interruption!
      announcer.say('leave', 'this host has left the job, which continues without it')
      return { verdict: { kind: 'interrupted', exitCode }, reports: undefined }
    }
    tell(store, keys.report(restartCount, id), packReport(report))
    const listening = new AbortController()
    const judgeAlone = async (): Promise<Conclusion> => {
      if (!alone.signal.aborted) await once(alone.signal, 'abort', { signal: listening.signal })
      const lost = [alone.signal.reason as LostNode]
      const reports = [report]
      return { verdict: judge({ plan, reports, lost, restarts: 0, maxRestarts: 0 }), reports }
    }
    const withoutZero = judgeAlone()
    // If the store is lost, `verdict` rejects and node 0 counts as lost, so `withoutZero` resolves.
    const common = verdict.then(
      (said): Conclusion => ({ verdict: said, reports: undefined }),
      () => withoutZero,
    )
    const conclusion = await Promise.race([common, withoutZero])
    // This may reject `withoutZero`, whose rejection the race above has handled.
    listening.abort()
    if (isElastic && goesOn(conclusion.verdict))
      plan = await receive(store, keys.plan(restartCount + 1), planWith(id))
    return conclusion
  }

  return {
    firstAttempt: invitation.attempt,
    get plan() {
      return plan
    },
    get nodeRank() {
      return find().nodeRank
    },
    begin(restartCount) {
      const halt = new AbortController()
      const verdict = receive(store, keys.verdict(restartCount), verdictMessage)
      verdict.catch(() => {
        lose('its launcher has ended')
      })
      haltAtFailure(store, restartCount, halt)
      return {
        halt: AbortSignal.any([halt.signal, alone.signal]),
        fail: () => {
          tell(store, keys.failing(restartCount), find().nodeRank)
        },
        conclude: (report) => conclude(restartCount, report, verdict),
      }
    },
    async close() {
      isClosed = true
      clearInterval(heartbeat)
      await store.close()
    },
  }
}
