import { monotonicNow } from '@tsrun/core'
import type {
  ChartPoint,
  DashboardUpdate,
  JobView,
  LinksView,
  LogLine,
  RankView,
  StepView,
} from './views.ts'

/** Lines sent to a newly opened page. */
const KEPT_LINES = 500
/** Maximum new lines in one update. */
const UPDATE_LINES = 100
/** Maximum characters of a line. */
const LINE_LENGTH = 2000
/** Maximum characters of a report. */
const REPORT_LENGTH = 200_000
/** One hour of points, one per second. */
const KEPT_POINTS = 3600
/** Milliseconds between points, and the least time between polls of links and steps. */
const POINT_INTERVAL = 1000
/** Ratio of the pause after a poll to the duration of the poll. The pause is at most LONGEST_PAUSE. */
const LOOK_PAUSE = 200
const LONGEST_PAUSE = 5000

/** The feed's data sources. */
export interface DashboardSources {
  readonly job: () => JobView
  readonly links: () => LinksView
  /** The last step that all ranks have completed; undefined if there is no new step. */
  readonly step: () => StepView | undefined
}

/** Collects the page's data in bounded memory. */
export function createFeed(sources: DashboardSources) {
  const started = monotonicNow()
  const lines: LogLine[] = []
  const points: ChartPoint[] = []
  let added = { points: [] as ChartPoint[], lines: [] as LogLine[], dropped: 0 }
  let lastPoint = -Infinity
  let nextLook = -Infinity
  let links: LinksView | undefined
  let step: StepView | undefined
  let report: string | undefined

  /** Polls the links and the last step, at most once per second. */
  const look = (now: number, { phase }: JobView): Pick<DashboardUpdate, 'links' | 'step'> => {
    if (phase !== 'running' || now < nextLook) return {}
    const [newLinks, newStep] = [sources.links(), sources.step()]
    const wanted = LOOK_PAUSE * (monotonicNow() - now)
    nextLook = now + Math.max(POINT_INTERVAL, Math.min(LONGEST_PAUSE, wanted))
    if (newLinks.ranks.length > 0) links = newLinks
    step = newStep ?? step
    return { links, step: newStep }
  }

  return {
    isLive: true,

    addLine({ rank, stream, text }: LogLine): void {
      const line = { rank, stream, text: shortened(text, LINE_LENGTH) }
      keep(lines, line, KEPT_LINES)
      added.lines.push(line)
      if (added.lines.length <= UPDATE_LINES) return
      added.lines.shift()
      added.dropped += 1
    },

    setReport(text: string | undefined): void {
      report = text && shortened(text, REPORT_LENGTH)
    },

    /** See `PageSource`. Links and steps are not read while no page is open. */
    update(isWatched: boolean): DashboardUpdate {
      const job = sources.job()
      const now = monotonicNow()
      const at = (now - started) / 1000
      if (job.phase === 'running' && now - lastPoint >= POINT_INTERVAL) {
        lastPoint = now
        const point = pointOf(at, job.ranks)
        keep(points, point, KEPT_POINTS)
        added.points.push(point)
      }
      const looked = isWatched ? look(now, job) : {}
      const update = { at, job, ...added, report, ...looked }
      added = { points: [], lines: [], dropped: 0 }
      return update
    },

    snapshot(update: DashboardUpdate): DashboardUpdate {
      return { ...update, links, step, points, lines, dropped: 0 }
    },
  }
}

function keep<T>(list: T[], value: T, most: number): void {
  list.push(value)
  if (list.length > most) list.shift()
}

function shortened(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length)} …`
}

function pointOf(at: number, ranks: readonly RankView[]): ChartPoint {
  const mean = (key: 'loss' | 'stepsPerSecond' | 'cpu'): number | undefined => {
    const values = ranks.map((rank) => rank[key] ?? NaN).filter(Number.isFinite)
    return values.length === 0 ? undefined : values.reduce((sum, one) => sum + one) / values.length
  }
  return { at, loss: mean('loss'), stepsPerSecond: mean('stepsPerSecond'), cpu: mean('cpu') }
}
