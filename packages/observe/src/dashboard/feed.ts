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

/** The lines that a page gets when it is opened. */
const KEPT_LINES = 500
/** The most new lines of one update. */
const UPDATE_LINES = 100
/** The most characters of a line. */
const LINE_LENGTH = 2000
/** The most characters of a report. */
const REPORT_LENGTH = 200_000
/** One point a second: an hour. */
const KEPT_POINTS = 3600
/** Milliseconds between two points, and at least between two polls of links and steps. */
const POINT_INTERVAL = 1000
/**
 * A poll that takes long, as with many ranks, is made less often: the pause is this many times as long, at
 * most some seconds.
 */
const LOOK_PAUSE = 200
const LONGEST_PAUSE = 5000

/** Where the feed reads what it shows. */
export interface DashboardSources {
  /** The job as it is now. */
  readonly job: () => JobView
  readonly links: () => LinksView
  /** The last step of all ranks; undefined: no other one than the last time. */
  readonly step: () => StepView | undefined
}

/** Collects what the page shows, in bounded memory. */
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

  /** Shows this report of a failure; undefined: none. */
  setReport(text: string | undefined): void {
    this.#report = text === undefined ? undefined : shortened(text, REPORT_LENGTH)
  }

  /** See `PageSource`; without a page, links and steps are not read. */
  update(isWatched: boolean): DashboardUpdate {
    const update = this.#updateWith(this.#newPoints, this.#newLines, this.#dropped, isWatched)
    this.#newLines = []
    this.#newPoints = []
    this.#dropped = 0
    return update
  }

  /** See `PageSource`. */
  snapshot(update: DashboardUpdate): DashboardUpdate {
    const kept = { links: this.#links, step: this.#step }
    return { ...update, ...kept, points: this.#points, lines: this.#lines, dropped: 0 }
  }

  #updateWith(
    points: readonly ChartPoint[],
    lines: readonly LogLine[],
    dropped: number,
    isWatched: boolean,
  ): DashboardUpdate {
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
    return { at, job, points, lines, dropped, report: this.#report, ...looked }
  }

  /** At the links and the last step, once in a second or less often. */
  #look(now: number, { phase }: JobView): Pick<DashboardUpdate, 'links' | 'step'> {
    if (phase !== 'running' || now < this.#nextLook) return {}
    const [links, step] = [this.#sources.links(), this.#sources.step()]
    const wanted = LOOK_PAUSE * (monotonicNow() - now)
    this.#nextLook = now + Math.max(POINT_INTERVAL, Math.min(LONGEST_PAUSE, wanted))
    if (links.ranks.length > 0) this.#links = links
    this.#step = step ?? this.#step
    return { links: this.#links, ...(step === undefined ? {} : { step }) }
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
