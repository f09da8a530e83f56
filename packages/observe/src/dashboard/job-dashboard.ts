import { hostname } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { isatty } from 'node:tty'
import { monotonicNow, visibleText } from '@tsrun/core'
import { activityOf, spansFolder, type RankStatus } from '@tsrun/distributed/record'
import type { AttemptFacts, ObserveHost, RankRates } from '../host.ts'
import { createFeed } from './feed.ts'
import { DashboardServer } from './server.ts'
import { StepTail } from './step-tail.ts'
import type { JobPhase, JobView, LinksView, LogLine, RankView, StepView } from './views.ts'

/** Milliseconds between polls of process usage. */
const USE_INTERVAL = 1000

/** The longest delay of a Node timer in milliseconds. */
const FOREVER = 2 ** 31 - 1

/** Options of `JobDashboard`. */
export interface DashboardOptions {
  /** 0: any free port. */
  readonly port: number
  /**
   * Milliseconds for which the page stays open after the job. Undefined: until Ctrl-C, but only if the
   * job failed and stdin is a terminal.
   */
  readonly linger: number | undefined
  readonly script: string
  /** The script as it was named, and its arguments. */
  readonly command: string
  /** The folder of the ranks' traces. */
  readonly traces: string
}

/** Serves the page of a job, with the state and usage of its ranks on this host. */
export class JobDashboard {
  readonly #options: DashboardOptions
  readonly #host: ObserveHost
  readonly #feed = createFeed({
    job: () => this.#view(),
    links: () => this.#links(),
    step: () => this.#step(),
  })
  #tail: StepTail | undefined
  #server!: DashboardServer
  #attempt: AttemptFacts = { runId: '', worldSize: 0, restartCount: 0 }
  #readRanks: () => readonly RankStatus[] = () => []
  #phase: JobPhase = 'running'
  #rates: ReadonlyMap<number, RankRates> = new Map()
  #measuredAt = -Infinity
  readonly #startedAt = monotonicNow()
  #endedAt: number | undefined

  private constructor(options: DashboardOptions, host: ObserveHost) {
    this.#options = options
    this.#host = host
  }

  /** Starts the server and announces its address. @throws the system's error if the port is unusable */
  static async open(options: DashboardOptions, host: ObserveHost): Promise<JobDashboard> {
    const dashboard = new JobDashboard(options, host)
    const { port } = options
    dashboard.#server = await DashboardServer.open({ port, feed: dashboard.#feed })
    const { url } = dashboard.#server
    host.say('dashboard', `dashboard: ${url}`, { url })
    return dashboard
  }

  /** Switches to this attempt. */
  follow(attempt: AttemptFacts, readRanks: () => readonly RankStatus[]): void {
    this.#attempt = attempt
    this.#readRanks = readRanks
    this.#rates = new Map()
    this.#measuredAt = -Infinity
    this.#tail = new StepTail(
      spansFolder(this.#options.traces, attempt.runId),
      attempt.restartCount,
    )
  }

  addLine({ rank, stream, text }: LogLine): void {
    this.#feed.addLine({ rank, stream, text: visibleText(text) })
  }

  showFailure(report: string): void {
    this.#feed.setReport(visibleText(report))
  }

  /** Shows the outcome of the job, and keeps the page open as long as the options say. */
  async end(exitCode: number): Promise<void> {
    this.#phase = exitCode === 0 ? 'succeeded' : 'failed'
    this.#endedAt = monotonicNow()
    // Clear the report of an earlier attempt, which failed.
    if (exitCode === 0) this.#feed.setReport(undefined)
    const { stop } = this.#host
    const { linger = exitCode !== 0 && isatty(0) ? Infinity : 0 } = this.#options
    if (linger > 0 && !stop.aborted) {
      const until = linger === Infinity ? 'Ctrl-C' : `Ctrl-C, or for ${linger / 1000} s`
      const { url } = this.#server
      this.#host.say('dashboard', `the dashboard stays open until ${until}: ${url}`, { url })
      await pause(Math.min(linger, FOREVER), undefined, { signal: stop }).catch(() => undefined)
    }
    await this.close()
  }

  async close(): Promise<void> {
    await this.#server.close()
  }

  #view(): JobView {
    const phase = this.#phase
    const statuses = this.#readRanks()
    const now = monotonicNow()
    if (phase === 'running' && now - this.#measuredAt >= USE_INTERVAL) {
      this.#rates = this.#host.ratesOf(statuses)
      this.#measuredAt = now
    }
    const ranks = statuses
      .map((status) =>
        status.end !== undefined || phase !== 'running'
          ? ended(status)
          : toView(status, now, this.#rates.get(status.pid)),
      )
      .sort((a, b) => a.rank - b.rank)
    const { script, command } = this.#options
    const seconds = ((this.#endedAt ?? now) - this.#startedAt) / 1000
    return { ...this.#attempt, script, command, host: hostname(), phase, seconds, ranks }
  }

  #links(): LinksView {
    const statuses = this.#readRanks().toSorted((a, b) => a.rank - b.rank)
    return {
      ranks: statuses.map(({ rank }) => rank),
      sent: statuses.map(({ links }) => links.map(({ sent }) => sent)),
    }
  }

  #step(): StepView | undefined {
    return this.#tail?.look(this.#readRanks().map(({ rank }) => rank))
  }
}

function toView(status: RankStatus, now: number, rates: RankRates | undefined): RankView {
  const state = activityOf(status, rates?.computing)
  return {
    ...ended(status),
    ...rates,
    state,
    seconds: Math.max(0, now - status.since) / 1000,
    waitsFor: state === 'waiting' ? status.waitsFor : [],
  }
}

function ended({ rank, pid, end = 'ended', step, of, loss, ...last }: RankStatus): RankView {
  const { operation: name, sequence, group = '' } = last
  const operation = name === undefined ? undefined : `${name} #${sequence} of ${group}`
  return { rank, pid, operation, step, of, loss, state: end, waitsFor: [], seconds: 0 }
}
