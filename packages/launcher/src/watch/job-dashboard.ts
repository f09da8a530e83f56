import { hostname } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { isatty } from 'node:tty'
import { monotonicNow, visibleText } from '@tsrun/core'
import {
  DashboardFeed,
  DashboardServer,
  type JobPhase,
  type JobView,
  type LinksView,
  type RankView,
  type StepView,
  StepTail,
} from '@tsrun/telemetry'
import { activityOf, type RankStatus, spansFolder } from '@tsrun/distributed/record'
import type { DashboardOptions } from '../args/output-options.ts'
import { usageError } from '../args/read-setting.ts'
import type { AttemptFacts, JobWatcher } from '../job/job.ts'
import type { RankLineReader } from '../job/rank-log.ts'
import type { Announcer } from '../logs/console.ts'
import { withoutCodes } from '../logs/lines.ts'
import { stayUntilAborted, type Interrupts } from '../processes/interrupts.ts'
import { GpuWatch } from './gpu-use.ts'
import { pageFolder } from './page-folder.ts'
import { residentBytes } from '../processes/process-use.ts'
import { computingShare, useOf, type RankUse } from '../processes/rank-use.ts'

/** Milliseconds between two polls of what processes use. */
const USE_INTERVAL = 1000

interface Context {
  readonly env: NodeJS.ProcessEnv
  readonly interrupts: Pick<Interrupts, 'stop'>
}

/** What a rank has used, and what that is in a second. */
interface Use {
  readonly use: RankUse
  readonly rates: Pick<
    RankView,
    'computing' | 'cpu' | 'memory' | 'gpu' | 'gpuMemory' | 'stepsPerSecond'
  >
}

/** The page of a job: reads what its ranks on this host do and use, and serves it. */
export class JobDashboard implements JobWatcher {
  readonly #options: DashboardOptions
  readonly #interrupts: Context['interrupts']
  readonly #announcer: Announcer
  readonly #script: string
  readonly #gpus: GpuWatch
  readonly #feed = new DashboardFeed({
    job: () => this.#view(),
    links: () => this.#links(),
    step: () => this.#step(),
  })
  /** The folder of the trace. */
  readonly #traces: string
  #tail: StepTail | undefined
  #server: DashboardServer | undefined
  #attempt: AttemptFacts = { runId: '', worldSize: 0, restartCount: 0 }
  #readRanks: () => readonly RankStatus[] = () => []
  #phase: JobPhase = 'running'
  #uses: ReadonlyMap<number, Use> = new Map()
  #usesAt = -Infinity

  private constructor(
    options: DashboardOptions,
    script: string,
    { env, interrupts }: Context,
    announcer: Announcer,
    traces: string,
  ) {
    this.#options = options
    this.#traces = traces
    this.#script = script
    this.#interrupts = interrupts
    this.#announcer = announcer
    this.#gpus = new GpuWatch(env, interrupts.stop)
  }

  /**
   * Opens it and announces its address.
   *
   * @param traces - the folder in which the ranks are traced
   * @throws ERR_TSR_USAGE when the port cannot be used
   */
  static async open(
    options: DashboardOptions,
    script: string,
    context: Context,
    announcer: Announcer,
    traces: string,
  ): Promise<JobDashboard> {
    const dashboard = new JobDashboard(options, script, context, announcer, traces)
    const { port } = options
    const folder = pageFolder()
    try {
      dashboard.#server = await DashboardServer.open({ port, folder, feed: dashboard.#feed })
    } catch (cause) {
      throw usageError(`--dashboard ${port}: ${(cause as Error).message}`, cause)
    }
    const { url } = dashboard.#server
    announcer.say('dashboard', `dashboard: ${url}`, { url })
    return dashboard
  }

  follow(attempt: AttemptFacts, readRanks: () => readonly RankStatus[]): void {
    this.#attempt = attempt
    this.#readRanks = readRanks
    this.#uses = new Map()
    this.#usesAt = -Infinity
    this.#tail = new StepTail(spansFolder(this.#traces, attempt.runId), attempt.restartCount)
  }

  /** Gets every line of the ranks. */
  readonly addLine: RankLineReader = (rank, stream, { text }) => {
    this.#feed.addLine({ rank, stream, text: visibleText(withoutCodes(text)) })
  }

  showFailure(report: string): void {
    this.#feed.setReport(visibleText(report))
  }

  /** Shows the end of the job, and stays open for as long as the options say. */
  async end(exitCode: number): Promise<void> {
    this.#phase = exitCode === 0 ? 'succeeded' : 'failed'
    // Of an attempt before the one that has succeeded.
    if (exitCode === 0) this.#feed.setReport(undefined)
    const { stop } = this.#interrupts
    const { linger = exitCode !== 0 && isatty(0) ? Infinity : 0 } = this.#options
    if (linger > 0 && !stop.aborted) {
      const until = linger === Infinity ? 'Ctrl-C' : `Ctrl-C, or for ${linger / 1000} s`
      const url = this.#server?.url ?? ''
      this.#announcer.say('dashboard', `the dashboard stays open until ${until}: ${url}`, { url })
      if (linger === Infinity) {
        // The server alone does not keep the process alive.
        await stayUntilAborted(stop)
      } else await pause(linger, undefined, { signal: stop }).catch(() => undefined)
    }
    await this.close()
  }

  async close(): Promise<void> {
    await this.#server?.close()
  }

  #view(): JobView {
    const phase = this.#phase
    const statuses = this.#readRanks()
    const now = monotonicNow()
    if (phase === 'running' && now - this.#usesAt >= USE_INTERVAL) this.#measure(statuses, now)
    const ranks = statuses
      .map((status) =>
        status.end !== undefined || phase !== 'running'
          ? ended(status)
          : toView(status, now, this.#uses.get(status.pid)),
      )
      .sort((a, b) => a.rank - b.rank)
    return { ...this.#attempt, script: this.#script, host: hostname(), phase, ranks }
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

  #measure(statuses: readonly RankStatus[], at: number): void {
    void this.#gpus.ask()
    const before = this.#uses
    this.#usesAt = at
    this.#uses = new Map(
      statuses.map((status) => {
        const { pid } = status
        const last = before.get(pid)?.use
        const use = useOf(status, this.#gpus.latest)
        const seconds = last === undefined ? 0 : (use.at - last.at) / 1000
        const rate = (from: number | undefined, to: number | undefined): number | undefined =>
          from === undefined || to === undefined ? undefined : (to - from) / seconds
        const { busy, memory } = use.gpu ?? {}
        const rates = {
          computing: computingShare(last, use),
          cpu: rate(last?.cpuSeconds, use.cpuSeconds),
          stepsPerSecond: rate(last?.step, use.step),
          memory: residentBytes(pid),
          ...{ gpu: busy, gpuMemory: memory },
        }
        return [pid, { use, rates }]
      }),
    )
  }
}

function toView(status: RankStatus, now: number, use: Use | undefined): RankView {
  const state = activityOf(status, use?.rates.computing)
  return {
    ...{ ...ended(status), ...use?.rates, state },
    seconds: Math.max(0, now - status.since) / 1000,
    waitsFor: state === 'waiting' ? status.waitsFor : [],
  }
}

function ended({ rank, pid, end = 'ended', step, loss, ...last }: RankStatus): RankView {
  const { operation: name, sequence, group = '' } = last
  const operation = name === undefined ? undefined : `${name} #${sequence} of ${group}`
  return { rank, pid, operation, step, loss, state: end, waitsFor: [], seconds: 0 }
}
