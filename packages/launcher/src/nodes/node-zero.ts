import { setTimeout as pause } from 'node:timers/promises'
import type { Store } from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import type { NodePlan, NodeReport, Nodes, SharedAttempt, Verdict } from '../job/nodes.ts'
import { aborted } from '../processes/interrupts.ts'
import type { LostNode } from '../report/failure.ts'
import type { JobStore } from './endpoint.ts'
import type { ArrivedNode, Gathered } from './gather.ts'
import { keys, post, receive, shareInterrupts, unpackReport } from './messages.ts'
import { judge } from './verdict.ts'
import { HEARTBEAT, HeartbeatMonitor } from './waiting.ts'

/** Milliseconds that the other nodes have to read the last verdict before the store closes. */
const CLOSING_TIME = 3000

/** Node 0 serves the store, watches the other nodes, collects their reports and decides. */
export class NodeZero implements Nodes {
  readonly plan: NodePlan
  readonly nodeRank = 0
  readonly #store: Store
  readonly #jobStore: JobStore
  readonly #maxRestarts: number
  readonly #listening: NodeJS.Timeout
  readonly #lost = new Map<number, LostNode>()
  /** By node rank: aborted when the node is gone, or has left after the last verdict. */
  readonly #gone = new Map<number, AbortController>()
  #halt = new AbortController()

  constructor(job: Job, store: JobStore, { plan, arrived }: Gathered, context: JobContext) {
    const { options } = job
    this.plan = plan
    this.#jobStore = store
    this.#store = store.local
    this.#maxRestarts = options.maxRestarts
    const monitors = arrived.map((one) => this.#watch(one, options.hostTimeout, context))
    this.#listening = setInterval(() => {
      for (const monitor of monitors) monitor.tick()
    }, HEARTBEAT)
    shareInterrupts(this.#store, plan.nodes[0]!, context.interrupts).catch(() => undefined)
  }

  begin(restartCount: number): SharedAttempt {
    const halt = new AbortController()
    this.#halt = halt
    if (this.#lost.size > 0) halt.abort()
    receive(this.#store, keys.failing(restartCount)).then(
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
    const left = [...this.#gone.values()].map(({ signal }) => aborted(signal))
    await Promise.race([Promise.all(left), pause(CLOSING_TIME)])
    clearInterval(this.#listening)
    await this.#jobStore.close()
  }

  async #conclude(restartCount: number, own: NodeReport): Promise<Verdict> {
    const others = [...this.#gone].map(([node, { signal }]) =>
      // A node that is gone does not report any more.
      receive<NodeReport>(this.#store, keys.report(restartCount, node), signal).then(
        unpackReport,
        () => undefined,
      ),
    )
    // A node that is lost only now ends the attempt for the others, too.
    this.#halt.signal.addEventListener('abort', () => {
      this.#tellFailing(restartCount)
    })
    if (this.#halt.signal.aborted) this.#tellFailing(restartCount)
    const reports = [own, ...(await Promise.all(others))].filter((report) => report !== undefined)
    const verdict = judge({
      plan: this.plan,
      reports,
      lost: [...this.#lost.values()],
      restartCount,
      maxRestarts: this.#maxRestarts,
    })
    await post(this.#store, keys.verdict(restartCount), verdict)
    return verdict
  }

  #tellFailing(restartCount: number): void {
    post(this.#store, keys.failing(restartCount), 0).catch(() => undefined)
  }

  /** Notices at once that a node has ended, and when it has been silent for too long. */
  #watch({ id, node }: ArrivedNode, limit: number, { announcer }: JobContext): HeartbeatMonitor {
    const { nodeRank, host, address } = node
    const gone = new AbortController()
    this.#gone.set(nodeRank, gone)
    const lose = (reason: string): void => {
      if (gone.signal.aborted) return
      this.#lost.set(nodeRank, { node: nodeRank, host, address, reason })
      gone.abort()
      this.#halt.abort()
    }
    const name = `node ${nodeRank} (${host})`
    const monitor = new HeartbeatMonitor(limit, {
      onSilent: (seconds) => {
        const message = `${name} has been silent for ${seconds} s; the job fails after ${limit / 1000} s`
        announcer.say('silent', message, { node: nodeRank, seconds })
      },
      onBack: (seconds) => {
        const message = `${name} is back after ${seconds} s of silence`
        announcer.say('silent', message, { node: nodeRank, seconds })
      },
      onLost: () => {
        lose(`it was silent for ${limit / 1000} s`)
      },
    })
    const ended = 'its launcher has ended'
    const watches = [
      this.#store.watch(keys.heartbeat(nodeRank), () => {
        monitor.heard()
      }),
      this.#store.watch(keys.node(id), ({ value }) => {
        if (value === undefined) lose(ended)
      }),
    ]
    Promise.all(watches)
      .then(() => this.#store.check([keys.node(id)]))
      .then(
        (isThere) => {
          if (!isThere) lose(ended)
        },
        () => undefined,
      )
    return monitor
  }
}
