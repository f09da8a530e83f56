import { monotonicNow } from '@tsrun/core'
import type {
  ChartPoint,
  DashboardUpdate,
  JobView,
  LinksView,
  LogLine,
  PageSource,
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
export class DashboardFeed implements PageSource {
  readonly isLive = true
  readonly #sources: DashboardSources
  readonly #start = monotonicNow()
  readonly #lines: LogLine[] = []
  readonly #points: ChartPoint[] = []
  #newLines: LogLine[] = []
  #newPoints: ChartPoint[] = []
  #dropped = 0
  #lastPoint = -Infinity
  #nextLook = -Infinity
  #links: LinksView | undefined
  #step: StepView | undefined
  #report: string | undefined

  constructor(sources: DashboardSources) {
    this.#sources = sources
  }

  addLine({ rank, stream, text }: LogLine): void {
    const line = { rank, stream, text: shortened(text, LINE_LENGTH) }
    keep(this.#lines, line, KEPT_LINES)
    this.#newLines.push(line)
    if (this.#newLines.length <= UPDATE_LINES) return
    this.#newLines.shift()
    this.#dropped += 1
  }

  setReport(text: string | undefined): void {
    this.#report = text === undefined ? undefined : shortened(text, REPORT_LENGTH)
  }

  /** See `PageSource`. Links and steps are not read while no page is open. */
  update(isWatched: boolean): DashboardUpdate {
    const job = this.#sources.job()
    const now = monotonicNow()
    const at = (now - this.#start) / 1000
    if (job.phase === 'running' && now - this.#lastPoint >= POINT_INTERVAL) {
      this.#lastPoint = now
      const point = pointOf(at, job.ranks)
      keep(this.#points, point, KEPT_POINTS)
      this.#newPoints.push(point)
    }
    const looked = isWatched ? this.#look(now, job) : {}
    const added = { points: this.#newPoints, lines: this.#newLines, dropped: this.#dropped }
    this.#newLines = []
    this.#newPoints = []
    this.#dropped = 0
    return { at, job, ...added, report: this.#report, ...looked }
  }

  snapshot(update: DashboardUpdate): DashboardUpdate {
    const kept = { links: this.#links, step: this.#step }
    return { ...update, ...kept, points: this.#points, lines: this.#lines, dropped: 0 }
  }

  /** Polls the links and the last step, at most once per second. */
  #look(now: number, { phase }: JobView): Pick<DashboardUpdate, 'links' | 'step'> {
    if (phase !== 'running' || now < this.#nextLook) return {}
    const [links, step] = [this.#sources.links(), this.#sources.step()]
    const wanted = LOOK_PAUSE * (monotonicNow() - now)
    this.#nextLook = now + Math.max(POINT_INTERVAL, Math.min(LONGEST_PAUSE, wanted))
    if (links.ranks.length > 0) this.#links = links
    this.#step = step ?? this.#step
    return { links: this.#links, step }
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
