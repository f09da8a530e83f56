import { anything } from '@tsrun/core'
import type { Job, JobContext } from '../job/job.ts'
import { isLeave, type Conclusion, type Nodes } from '../job/nodes.ts'
import type { Joined } from './join.ts'
import { keys, packReport, post, receive, shareInterrupts } from './messages.ts'
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

  const nodeZero = `node 0 (${plan.nodes[0]!.host})`
  const limit = hostTimeout / 1000
  const say = (seconds: number, text: string): void => {
    announcer.say('silent', `${nodeZero} ${text}`, { node: 0, seconds })
  }
  const monitor = monitorHeartbeats(hostTimeout, {
    onSilent: (seconds) => {
      say(seconds, `has not answered for ${seconds} s; the job fails after ${limit} s`)
    },
    onBack: (seconds) => {
      say(seconds, `is back after ${seconds} s of silence`)
    },
    onLost: () => {
      lose(`it did not answer for ${limit} s`)
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
    post(store, keys.report(restartCount, id), packReport(report)).catch(() => undefined)
    const listening = new AbortController()
    const withoutZero = new Promise<Conclusion>((resolve) => {
      const decide = (): void => {
        const lost = [alone.signal.reason as LostNode]
        const reports = [report]
        const evidence = { plan, reports, lost, restarts: 0, maxRestarts: 0 }
        resolve({ verdict: judge(evidence), reports })
      }
      if (alone.signal.aborted) decide()
      alone.signal.addEventListener('abort', decide, { signal: listening.signal })
    })
    // If the store is lost, the promise `withoutZero` settles before `verdict` rejects.
    const common = verdict.then(
      (said): Conclusion => ({ verdict: said, reports: undefined }),
      () => withoutZero,
    )
    const conclusion = await Promise.race([common, withoutZero])
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
      receive(store, keys.failing(restartCount), anything()).then(
        () => {
          halt.abort()
        },
        () => undefined,
      )
      return {
        halt: AbortSignal.any([halt.signal, alone.signal]),
        fail: () => {
          post(store, keys.failing(restartCount), find().nodeRank).catch(() => undefined)
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
