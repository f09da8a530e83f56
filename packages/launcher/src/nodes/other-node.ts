import type { Store } from '@tsrun/store'
import type { Job } from '../job/job.ts'
import type { Surroundings } from '../job/attempt.ts'
import type { LostNode } from '../report/failure-text.ts'
import type { Joined } from './join.ts'
import { keys, packReport, post, receive } from './messages.ts'
import type { NodePlan } from '../job/nodes.ts'
import type { NodeReport, Nodes, SharedLife, Verdict } from '../job/nodes.ts'
import { shareInterrupts } from './messages.ts'
import { BEAT, Silence } from './waiting.ts'
import { judge } from './verdict.ts'

/** The view of the job from any node but 0: it reports to node 0 and hears its verdicts. */
export class OtherNode implements Nodes {
  readonly plan: NodePlan
  readonly #store: Store
  readonly #nodeRank: number
  readonly #beating: NodeJS.Timeout
  /** Aborted when node 0 is gone. */
  readonly #alone = new AbortController()
  #closed = false

  constructor({ options }: Job, { store, plan }: Joined, { announcer, interrupts }: Surroundings) {
    this.plan = plan
    this.#store = store
    this.#nodeRank = options.nodeRank
    const zero = `node 0 (${plan.nodes[0]!.host})`
    const limit = options.hostTimeout / 1000
    const silence = new Silence(options.hostTimeout, {
      onSilent: (seconds) => {
        const message = `no answer from ${zero} for ${seconds} s; given up after ${limit} s`
        announcer.say('silent', message, { node: 0, seconds })
      },
      onBack: (seconds) => {
        announcer.say('silent', `${zero} answers again after ${seconds} s`, { node: 0, seconds })
      },
      onLost: () => {
        this.#lose(`no answer from it for ${limit} s`)
      },
    })
    let answered = true
    this.#beating = setInterval(() => {
      silence.tick()
      if (!answered) return
      answered = false
      const heard = (): void => {
        answered = true
        silence.heard()
      }
      store.set(keys.beat(this.#nodeRank), '').then(heard, () => undefined)
    }, BEAT)
    shareInterrupts(store, plan.nodes[this.#nodeRank]!, interrupts).catch(() => undefined)
  }

  begin(restartCount: number): SharedLife {
    const halt = new AbortController()
    const verdict = receive<Verdict>(this.#store, keys.verdict(restartCount))
    verdict.catch(() => {
      this.#lose('its launcher has ended')
    })
    receive(this.#store, keys.failing(restartCount)).then(
      () => {
        halt.abort()
      },
      () => undefined,
    )
    return {
      halt: AbortSignal.any([halt.signal, this.#alone.signal]),
      fail: () => {
        post(this.#store, keys.failing(restartCount), this.#nodeRank).catch(() => undefined)
      },
      conclude: (report) => this.#conclude(restartCount, report, verdict),
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    clearInterval(this.#beating)
    await this.#store.close()
  }

  async #conclude(life: number, report: NodeReport, verdict: Promise<Verdict>): Promise<Verdict> {
    post(this.#store, keys.report(life, this.#nodeRank), packReport(report)).catch(() => undefined)
    const alone = new Promise<Verdict>((resolve) => {
      const decide = (): void => {
        const lost = [this.#alone.signal.reason as LostNode]
        const budget = { restartCount: life, maxRestarts: 0 }
        resolve(judge({ plan: this.plan, reports: [report], lost, ...budget }))
      }
      if (this.#alone.signal.aborted) decide()
      this.#alone.signal.addEventListener('abort', decide)
    })
    // A lost store rejects the verdict, but says so to `alone` first.
    return await Promise.race([verdict.catch(() => alone), alone])
  }

  #lose(reason: string): void {
    if (this.#closed) return
    const { host, address } = this.plan.nodes[0]!
    const lost: LostNode = { node: 0, host, address, reason }
    this.#alone.abort(lost)
  }
}
