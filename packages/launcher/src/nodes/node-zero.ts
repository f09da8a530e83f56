import { setTimeout as pause } from 'node:timers/promises'
import { anything, isTsrError } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import type { Conclusion, Nodes, SharedAttempt } from '../job/nodes.ts'
import { aborted } from '../job/process/interrupts.ts'
import type { JobStore } from './endpoint.ts'
import type { Members } from './gather.ts'
import { forgetAttempt, keys, post, receive, shareInterrupts, unpackReport } from './messages.ts'
import {
  type NodeFacts,
  type NodePlan,
  type NodeReport,
  type Verdict,
  type LostNode,
  reportMessage,
} from '../protocol/nodes.ts'
import { goesOn, judge, RestartBudget } from './verdict.ts'
import { HEARTBEAT, HeartbeatMonitor } from './waiting.ts'

/** Milliseconds for the other nodes to read the last verdict before the store closes. */
const CLOSING_TIME = 3000

interface Watched {
  readonly monitor: HeartbeatMonitor
  /** Aborted when the node is lost, or has left after the last verdict. */
  readonly gone: AbortController
}

/** Node 0 serves the store, watches the other nodes, collects their reports and decides on the verdict. */
export class NodeZero implements Nodes {
  readonly nodeRank = 0
  readonly firstAttempt = 0
  plan: NodePlan
  readonly #job: Job
  readonly #context: JobContext
  readonly #store: Store
  readonly #jobStore: JobStore
  readonly #members: Members
  readonly #isElastic: boolean
  readonly #listening: NodeJS.Timeout
  readonly #watched = new Map<string, Watched>()
  #lost: LostNode[] = []
  /** Whether a lost node left voluntarily. */
  #hasLeft = false
  readonly #budget = new RestartBudget()
  /** Why the current attempt ends early. */
  #change: string | undefined
  #attempt: number | undefined
  #halt = new AbortController()

  constructor(job: Job, store: JobStore, members: Members, plan: NodePlan, context: JobContext) {
    const { minNodes, nnodes } = job.placement
    this.plan = plan
    this.#job = job
    this.#context = context
    this.#jobStore = store
    this.#store = store.local
    this.#members = members
    this.#isElastic = minNodes < nnodes
    members.onArrival = ({ node }) => {
      if (!this.#isElastic || this.#attempt === undefined) return
      this.#change = `${node.host} has joined`
      this.#halt.abort()
      this.#tellFailing(this.#attempt)
    }
    members.onLeave = ({ id }) => {
      this.#lose(id, 'its launcher has ended')
    }
    this.#watchAll()
    this.#listening = setInterval(() => {
      for (const { monitor } of this.#watched.values()) monitor.tick()
    }, HEARTBEAT)
    shareInterrupts(this.#store, plan.nodes[0]!, context.interrupts, false).catch(() => undefined)
  }

  begin(restartCount: number): SharedAttempt {
    const halt = new AbortController()
    this.#halt = halt
    this.#attempt = restartCount
    this.#budget.begin()
    if (this.#lost.length > 0) halt.abort()
    // Every node has finished the second-last attempt, so nobody reads its keys.
    forgetAttempt(this.#store, restartCount - 2).catch(() => undefined)
    receive(this.#store, keys.failing(restartCount), anything()).then(
      () => {
        halt.abort()
      },
      () => undefined,
    )
    return {
      halt: halt.signal,
      fail: () => {
        this.#tellFailing(restartCount)
      },
      conclude: (report) => this.#conclude(restartCount, report),
    }
  }

  async close(): Promise<void> {
    const left = [...this.#watched.values()].map(({ gone }) => aborted(gone.signal))
    await Promise.race([Promise.all(left), pause(CLOSING_TIME)])
    clearInterval(this.#listening)
    this.#members.close()
    await this.#jobStore.close()
  }

  async #conclude(restartCount: number, own: NodeReport): Promise<Conclusion> {
    const others = [...this.#watched].map(([id, { gone }]) =>
      // A lost node sends no report.
      receive(this.#store, keys.report(restartCount, id), reportMessage, gone.signal).then(
        unpackReport,
        (error: unknown) => {
          const isRead = isTsrError(error) && error.code === 'ERR_TSR_MESSAGE_INVALID'
          if (isRead) this.#lose(id, 'its report cannot be read')
          return undefined
        },
      ),
    )
    // If a node is lost from now on, end the attempt on the other nodes, too.
    this.#halt.signal.addEventListener('abort', () => {
      this.#tellFailing(restartCount)
    })
    if (this.#halt.signal.aborted) this.#tellFailing(restartCount)
    const reports = [own, ...(await Promise.all(others))].filter((report) => report !== undefined)
    this.#attempt = undefined
    const { plan } = this
    const judged = (isElastic: boolean): Verdict =>
      judge({
        plan,
        reports,
        lost: this.#lost,
        hasLeft: this.#hasLeft,
        restarts: this.#budget.used,
        maxRestarts: this.#job.restart.maxRestarts,
        change: this.#change,
        isElastic,
      })
    let verdict = judged(this.#isElastic)
    if (goesOn(verdict) && this.#isElastic && !(await this.#regather(restartCount + 1))) {
      verdict = judged(false)
    }
    await post(this.#store, keys.verdict(restartCount), this.#budget.take(verdict))
    return { verdict, reports }
  }

  /** Plans the next attempt with the present nodes. @returns whether there are enough */
  async #regather(attempt: number): Promise<boolean> {
    const { announcer } = this.#context
    try {
      this.plan = await this.#members.gather(attempt)
    } catch (error) {
      if (!isTsrError(error)) throw error
      announcer.say('rendezvous', error.message, { code: error.code })
      return false
    }
    this.#lost = []
    this.#hasLeft = false
    this.#change = undefined
    this.#watchAll()
    return true
  }

  #tellFailing(restartCount: number): void {
    post(this.#store, keys.failing(restartCount), 0).catch(() => undefined)
  }

  #lose(id: string, reason: string, isLeave = false): void {
    const watched = this.#watched.get(id)
    const node = this.#find(id)
    if (watched === undefined || node === undefined || watched.gone.signal.aborted) return
    const { nodeRank, host, address } = node
    this.#lost = [...this.#lost, { node: nodeRank, host, address, reason }]
    this.#hasLeft ||= isLeave
    this.#context.events?.record('node-left', { left: { node: nodeRank, host, address, reason } })
    if (this.#attempt !== undefined) {
      const { announcer } = this.#context
      announcer.say('lost', `node ${nodeRank} (${host}) is gone: ${reason}`, { node: nodeRank })
    }
    watched.gone.abort()
    this.#members.remove(id)
    this.#halt.abort()
  }

  #find(id: string): NodeFacts | undefined {
    return this.plan.nodes.find((node) => node.id === id)
  }

  /** Watches exactly the nodes of the plan. */
  #watchAll(): void {
    const ids = this.plan.nodes.slice(1).map(({ id }) => id)
    for (const id of this.#watched.keys()) if (!ids.includes(id)) this.#watched.delete(id)
    for (const id of ids) if (!this.#watched.has(id)) this.#watched.set(id, this.#watch(id))
    // A node that left after the plan was made is not announced again.
    for (const id of ids)
      if (!this.#members.arrived.has(id)) this.#lose(id, 'its launcher has ended')
  }

  #watch(id: string): Watched {
    const { announcer } = this.#context
    const { hostTimeout } = this.#job.rendezvous
    const limit = hostTimeout / 1000
    const say = (seconds: number, text: string): void => {
      const { nodeRank = -1, host = '' } = this.#find(id) ?? {}
      const message = `node ${nodeRank} (${host}) ${text}`
      announcer.say('silent', message, { node: nodeRank, seconds })
    }
    const monitor = new HeartbeatMonitor(hostTimeout, {
      onSilent: (seconds) => {
        const then = this.#isElastic ? 'the job continues without it' : 'the job fails'
        say(seconds, `has been silent for ${seconds} s; ${then} after ${limit} s`)
      },
      onBack: (seconds) => {
        say(seconds, `is back after ${seconds} s of silence`)
      },
      onLost: () => {
        this.#lose(id, `it was silent for ${limit} s`)
      },
    })
    this.#store
      .watch(keys.heartbeat(id), () => {
        monitor.heard()
      })
      .catch(() => undefined)
    this.#store
      .watch(keys.leaving(id), ({ value }) => {
        if (value !== undefined) this.#lose(id, 'it was stopped by SIGTERM', true)
      })
      .catch(() => undefined)
    return { monitor, gone: new AbortController() }
  }
}
