import { setTimeout as pause } from 'node:timers/promises'
import type { Store } from '@tsrun/store'
import type { Job } from '../job/job.ts'
import type { Surroundings } from '../job/attempt.ts'
import type { LostNode } from '../report/failure-text.ts'
import type { HostedStore } from './endpoint.ts'
import type { Gathered, Present } from './gather.ts'
import { keys, post, receive, unpackReport } from './messages.ts'
import type { NodePlan } from '../job/nodes.ts'
import type { NodeReport, Nodes, SharedLife, Verdict } from '../job/nodes.ts'
import { shareInterrupts } from './messages.ts'
import { BEAT, Silence } from './waiting.ts'
import { judge } from './verdict.ts'

/** Milliseconds in which the others may take the last verdict before the store closes. */
const FAREWELL = 3000

/** Node 0: hosts the store, watches the others, collects what they report and decides. */
export class NodeZero implements Nodes {
  readonly plan: NodePlan
  readonly #store: Store
  readonly #hosted: HostedStore
  readonly #maxRestarts: number
  readonly #listening: NodeJS.Timeout
  readonly #lost = new Map<number, LostNode>()
  /** By node rank: aborted when the node is gone, or has left after the last verdict. */
  readonly #gone = new Map<number, AbortController>()
  #halt = new AbortController()

  constructor(job: Job, hosted: HostedStore, { plan, present }: Gathered, around: Surroundings) {
    const { options } = job
    this.plan = plan
    this.#hosted = hosted
    this.#store = hosted.local
    this.#maxRestarts = options.maxRestarts
    const silences = present.map((one) => this.#attend(one, options.hostTimeout, around))
    this.#listening = setInterval(() => {
      for (const silence of silences) silence.tick()
    }, BEAT)
    shareInterrupts(this.#store, plan.nodes[0]!, around.interrupts).catch(() => undefined)
  }

  begin(restartCount: number): SharedLife {
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
    await Promise.race([Promise.all(left), pause(FAREWELL)])
    clearInterval(this.#listening)
    await this.#hosted.close()
  }

  async #conclude(restartCount: number, own: NodeReport): Promise<Verdict> {
    const others = [...this.#gone].map(([node, { signal }]) =>
      // a node that is gone reports no more
      receive<NodeReport>(this.#store, keys.report(restartCount, node), signal).then(
        unpackReport,
        () => undefined,
      ),
    )
    // Whoever is lost only now must end the lives of the others.
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

  /** Notices the end of a node, at once, and its silence. */
  #attend({ id, node }: Present, limit: number, { announcer }: Surroundings): Silence {
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
    const silence = new Silence(limit, {
      onSilent: (seconds) => {
        const message = `${name} has been silent for ${seconds} s; given up after ${limit / 1000} s`
        announcer.say('silent', message, { node: nodeRank, seconds })
      },
      onBack: (seconds) => {
        const message = `${name} is heard again after ${seconds} s`
        announcer.say('silent', message, { node: nodeRank, seconds })
      },
      onLost: () => {
        lose(`nothing heard from it for ${limit / 1000} s`)
      },
    })
    const ended = 'its launcher has ended'
    const watches = [
      this.#store.watch(keys.beat(nodeRank), () => {
        silence.heard()
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
    return silence
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    signal.addEventListener('abort', () => {
      resolve()
    })
  })
}
