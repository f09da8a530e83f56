import { anything } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import { isLeave, type Conclusion, type Nodes, type SharedAttempt } from '../job/nodes.ts'
import type { Joined } from './join.ts'
import { keys, packReport, post, receive, shareInterrupts } from './messages.ts'
import {
  type NodePlan,
  type NodeReport,
  type Verdict,
  type LostNode,
  planWith,
  verdictMessage,
} from '../protocol/nodes.ts'
import { goesOn, judge } from './verdict.ts'
import { HEARTBEAT, HeartbeatMonitor } from './waiting.ts'

/** A node other than node 0. It reports to node 0 and receives its verdicts. */
export class OtherNode implements Nodes {
  readonly firstAttempt: number
  plan: NodePlan
  readonly #id: string
  readonly #isElastic: boolean
  readonly #store: Store
  readonly #announcer: JobContext['announcer']
  readonly #heartbeat: NodeJS.Timeout
  /** Aborted when node 0 is lost. */
  readonly #alone = new AbortController()
  #closed = false

  constructor(
    { placement, rendezvous: { hostTimeout } }: Job,
    { store, id, invitation }: Joined,
    { announcer, interrupts }: JobContext,
  ) {
    const { plan, attempt } = invitation
    this.#announcer = announcer
    this.plan = plan
    this.firstAttempt = attempt
    this.#id = id
    this.#isElastic = placement.minNodes < placement.nnodes
    this.#store = store
    const nodeZero = `node 0 (${plan.nodes[0]!.host})`
    const limit = hostTimeout / 1000
    const monitor = new HeartbeatMonitor(hostTimeout, {
      onSilent: (seconds) => {
        const message = `${nodeZero} has not answered for ${seconds} s; the job fails after ${limit} s`
        announcer.say('silent', message, { node: 0, seconds })
      },
      onBack: (seconds) => {
        const message = `${nodeZero} is back after ${seconds} s of silence`
        announcer.say('silent', message, { node: 0, seconds })
      },
      onLost: () => {
        this.#lose(`it did not answer for ${limit} s`)
      },
    })
    let answered = true
    this.#heartbeat = setInterval(() => {
      monitor.tick()
      if (!answered) return
      answered = false
      const heard = (): void => {
        answered = true
        monitor.heard()
      }
      store.set(keys.heartbeat(id), '').then(heard, () => undefined)
    }, HEARTBEAT)
    const own = plan.nodes[this.nodeRank]!
    shareInterrupts(store, own, interrupts, this.#isElastic).catch(() => undefined)
  }

  get nodeRank(): number {
    return this.plan.nodes.find(({ id }) => id === this.#id)!.nodeRank
  }

  begin(restartCount: number): SharedAttempt {
    const halt = new AbortController()
    const verdict = receive(this.#store, keys.verdict(restartCount), verdictMessage)
    verdict.catch(() => {
      this.#lose('its launcher has ended')
    })
    receive(this.#store, keys.failing(restartCount), anything()).then(
      () => {
        halt.abort()
      },
      () => undefined,
    )
    return {
      halt: AbortSignal.any([halt.signal, this.#alone.signal]),
      fail: () => {
        post(this.#store, keys.failing(restartCount), this.nodeRank).catch(() => undefined)
      },
      conclude: (report) => this.#conclude(restartCount, report, verdict),
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    clearInterval(this.#heartbeat)
    await this.#store.close()
  }

  async #conclude(
    restartCount: number,
    report: NodeReport,
    verdict: Promise<Verdict>,
  ): Promise<Conclusion> {
    const { interruption } = report
    if (this.#isElastic && isLeave(interruption)) {
      const { exitCode } = interruption!
      this.#announcer.say('leave', 'this host has left the job, which continues without it')
      return { verdict: { kind: 'interrupted', exitCode }, reports: undefined }
    }
    const key = keys.report(restartCount, this.#id)
    post(this.#store, key, packReport(report)).catch(() => undefined)
    const listening = new AbortController()
    const alone = new Promise<Conclusion>((resolve) => {
      const decide = (): void => {
        const lost = [this.#alone.signal.reason as LostNode]
        const budget = { restarts: 0, maxRestarts: 0 }
        const reports = [report]
        resolve({ verdict: judge({ plan: this.plan, reports, lost, ...budget }), reports })
      }
      if (this.#alone.signal.aborted) decide()
      this.#alone.signal.addEventListener('abort', decide, { signal: listening.signal })
    })
    // If the store is lost, the promise `alone` settles before `verdict` rejects.
    const common = verdict.then(
      (said): Conclusion => ({ verdict: said, reports: undefined }),
      () => alone,
    )
    const conclusion = await Promise.race([common, alone])
    listening.abort()
    if (this.#isElastic && goesOn(conclusion.verdict))
      this.plan = await receive(this.#store, keys.plan(restartCount + 1), planWith(this.#id))
    return conclusion
  }

  #lose(reason: string): void {
    if (this.#closed) return
    const { host, address } = this.plan.nodes[0]!
    const lost: LostNode = { node: 0, host, address, reason }
    this.#alone.abort(lost)
  }
}
