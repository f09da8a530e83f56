import { hostname } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { isatty } from 'node:tty'
import { monotonicNow, visibleText } from '@tsrun/core'
import { activityOf, spansFolder, type RankStatus } from '@tsrun/distributed/record'
import type { AttemptFacts, ObserveHost, RankRates } from '../host.ts'
import { serveDashboard } from './server.ts'
import { followSteps } from './step-tail.ts'
import type {
  ChartPoint,
  DashboardUpdate,
  JobPhase,
  JobView,
  LinksView,
  LogLine,
  RankView,
  StepView,
} from './views.ts'

/** Milliseconds between polls of process usage. */
const USE_INTERVAL = 1000
/** The longest delay of a Node timer in milliseconds. */
const FOREVER = 2 ** 31 - 1
/** Lines sent to a newly opened page. */
const KEPT_LINES = 500
/** Maximum new lines in one update. */
const UPDATE_LINES = 100
/** Maximum characters of a line. */
const LINE_LENGTH = 2000
/** Maximum characters of a report. */
const REPORT_LENGTH = 200_000
/** Maximum points of a chart: one hour at one point per second. */
const KEPT_POINTS = 3600
/** Milliseconds between points, and minimum milliseconds between polls of links and steps. */
const POINT_INTERVAL = 1000
/** Ratio of the pause after a poll to the duration of the poll. The pause is at most LONGEST_PAUSE. */
const LOOK_PAUSE = 200
const LONGEST_PAUSE = 5000

/** Options of `openJobDashboard`. */
export interface DashboardOptions {
  /** The port to listen at; 0: any free port. */
  readonly port: number
  /**
   * Milliseconds for which the page stays open after the job. Default: until Ctrl-C if the job failed and
   * stdin is a terminal, otherwise 0.
   */
  readonly linger: number | undefined
  readonly script: string
  /** The script as it was named, and its arguments. */
  readonly command: string
  /** The folder of the ranks' traces. */
  readonly traces: string
}

/**
 * Serves the page of a job, with the state and usage of its ranks on this host. Keeps the data of the
 * page in bounded memory, and announces the address.
 *
 * @throws the system's error if the port is unusable
 */
export async function openJobDashboard(options: DashboardOptions, host: ObserveHost) {
  const startedAt = monotonicNow()
  const lines: LogLine[] = []
  const points: ChartPoint[] = []
  let added = { points: [] as ChartPoint[], lines: [] as LogLine[], dropped: 0 }
  let lastPoint = -Infinity
  let nextLook = -Infinity
  let links: LinksView | undefined
  let step: StepView | undefined
  let report: string | undefined
  let attempt: AttemptFacts = { runId: '', worldSize: 0, restartCount: 0 }
  let readRanks: () => readonly RankStatus[] = () => []
  let lookAtStep: ReturnType<typeof followSteps> = () => undefined
  let phase: JobPhase = 'running'
  let rates: ReadonlyMap<number, RankRates> = new Map()
  let measuredAt = -Infinity
  let endedAt: number | undefined

  const view = (): JobView => {
    const statuses = readRanks()
    const now = monotonicNow()
    if (phase === 'running' && now - measuredAt >= USE_INTERVAL) {
      rates = host.ratesOf(statuses)
      measuredAt = now
    }
    const ranks = statuses
      .map((status) =>
        status.end !== undefined || phase !== 'running'
          ? ended(status)
          : toView(status, now, rates.get(status.pid)),
      )
      .sort((a, b) => a.rank - b.rank)
    const { script, command } = options
    const seconds = ((endedAt ?? now) - startedAt) / 1000
    return { ...attempt, script, command, host: hostname(), phase, seconds, ranks }
  }

  /** Polls the links and the last step, at most once per second. */
  const look = (now: number): Pick<DashboardUpdate, 'links' | 'step'> => {
    if (phase !== 'running' || now < nextLook) return {}
    const statuses = readRanks().toSorted((a, b) => a.rank - b.rank)
    const ranks = statuses.map(({ rank }) => rank)
    if (ranks.length > 0) {
      links = { ranks, sent: statuses.map((status) => status.links.map(({ sent }) => sent)) }
    }
    const newStep = lookAtStep(ranks)
    const wanted = LOOK_PAUSE * (monotonicNow() - now)
    nextLook = now + Math.max(POINT_INTERVAL, Math.min(LONGEST_PAUSE, wanted))
    step = newStep ?? step
    return { links, step: newStep }
  }

  const { url, close } = await serveDashboard(options.port, {
    isLive: true,
    /** Links and steps are not read while no page is open. */
    update(isWatched) {
      const job = view()
      const now = monotonicNow()
      const at = (now - startedAt) / 1000
      if (phase === 'running' && now - lastPoint >= POINT_INTERVAL) {
        lastPoint = now
        const point = pointOf(at, job.ranks)
        keep(points, point, KEPT_POINTS)
        added.points.push(point)
      }
      const looked = isWatched ? look(now) : {}
      const update = { at, job, ...added, report, ...looked }
      added = { points: [], lines: [], dropped: 0 }
      return update
    },
    snapshot: (update) => ({ ...update, links, step, points, lines, dropped: 0 }),
  })
  host.say('dashboard', `dashboard: ${url}`, { url })

  return {
    close,
    /** Shows this attempt instead of the previous one. */
    follow(next: AttemptFacts, read: () => readonly RankStatus[]) {
      attempt = next
      readRanks = read
      rates = new Map()
      measuredAt = -Infinity
      lookAtStep = followSteps(spansFolder(options.traces, next.runId), next.restartCount)
    },
    addLine({ rank, stream, text }: LogLine) {
      const line = { rank, stream, text: shortened(visibleText(text), LINE_LENGTH) }
      keep(lines, line, KEPT_LINES)
      added.lines.push(line)
      if (added.lines.length <= UPDATE_LINES) return
      added.lines.shift()
      added.dropped += 1
    },
    showFailure(text: string) {
      report = shortened(visibleText(text), REPORT_LENGTH)
    },
    /** Shows the outcome of the job, and keeps the page open for `options.linger`. */
    async end(exitCode: number) {
      phase = exitCode === 0 ? 'succeeded' : 'failed'
      endedAt = monotonicNow()
      // Clear the report of an earlier attempt that failed.
      if (exitCode === 0) report = undefined
      const { stop } = host
      const { linger = exitCode !== 0 && isatty(0) ? Infinity : 0 } = options
      if (linger > 0 && !stop.aborted) {
        const until = linger === Infinity ? 'Ctrl-C' : `Ctrl-C, or for ${linger / 1000} s`
        host.say('dashboard', `the dashboard stays open until ${until}: ${url}`, { url })
        await pause(Math.min(linger, FOREVER), undefined, { signal: stop }).catch(() => undefined)
      }
      await close()
    },
  }
}

function keep<T>(list: T[], value: T, most: number) {
  list.push(value)
  if (list.length > most) list.shift()
}

function shortened(text: string, length: number) {
  return text.length <= length ? text : `${text.slice(0, length)} …`
}

function pointOf(at: number, ranks: readonly RankView[]): ChartPoint {
  const mean = (key: 'loss' | 'stepsPerSecond' | 'cpu') => {
    const values = ranks.map((rank) => rank[key] ?? NaN).filter(Number.isFinite)
    return values.length === 0 ? undefined : values.reduce((sum, one) => sum + one) / values.length
  }
  return { at, loss: mean('loss'), stepsPerSecond: mean('stepsPerSecond'), cpu: mean('cpu') }
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

function ended({ rank, end = 'ended', step, of, loss, ...last }: RankStatus): RankView {
  const { operation: name, sequence, group = '' } = last
  const operation = name === undefined ? undefined : `${name} #${sequence} of ${group}`
  return { rank, operation, step, of, loss, state: end, waitsFor: [], seconds: 0 }
}
