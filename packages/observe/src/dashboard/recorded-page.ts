import { summarizeSteps } from '../trace/summary.ts'
import { summarySentences } from '../trace/summarize.ts'
import { readSteps, type RecordedSteps, type TracedRun } from '../trace/traced-run.ts'
import { serveDashboard } from './server.ts'
import { stepView } from './step-view.ts'
import type {
  ChartPoint,
  DashboardUpdate,
  JobView,
  LogLine,
  PageSource,
  RankView,
} from './views.ts'

/** Maximum points of a chart. With more steps, each point is the mean of several steps. */
const MOST_POINTS = 1500

/** The recorded run that `servePage` shows. */
export interface RecordedPageOptions {
  readonly runId: string
  readonly script: string
  readonly trace: TracedRun
  /** The output of the ranks in the order of time. */
  readonly lines: readonly LogLine[]
  /** Number of earlier lines that are omitted. */
  readonly dropped: number
  readonly report: string | undefined
}

/**
 * Serves the page of a recorded run.
 *
 * @param port - 0: any free port
 * @throws the system's error if the port cannot be used
 */
export function servePage(port: number, options: RecordedPageOptions) {
  return serveDashboard(port, recordedPage(options))
}

function recordedPage({ trace, lines, dropped, report, ...run }: RecordedPageOptions): PageSource {
  const steps = readSteps(trace)
  const { numbers, ranks } = steps
  const step = (number: number) => {
    if (!numbers.includes(number)) return undefined
    const shown = ranks.map(({ header, windows, spansBetween }) => {
      const window = windows.get(number)!
      return { rank: header.rank, window, spans: spansBetween(window.start, window.end) }
    })
    return stepView(
      number,
      shown.sort((a, b) => a.rank - b.rank),
    )
  }
  const summary = summarizeSteps(steps)
  const recorded = summary && {
    steps: numbers,
    summary,
    sentences: summarySentences(summary),
  }
  const all: DashboardUpdate = {
    at: 0,
    job: { ...run, phase: 'recorded', ...placeOf(steps, lines) },
    points: pointsOf(steps),
    step: step(numbers.at(-1) ?? NaN),
    lines,
    dropped,
    report,
    recorded,
  }
  return {
    isLive: false,
    /** A recorded run never changes. */
    update: () => ({ ...all, points: [], lines: [], dropped: 0 }),
    snapshot: () => all,
    step,
  }
}

function placeOf(
  steps: RecordedSteps,
  lines: readonly LogLine[],
): Pick<JobView, 'worldSize' | 'restartCount' | 'ranks'> {
  const headers = steps.ranks.map(({ header }) => header)
  const ranks = new Set([...headers, ...lines].map(({ rank }) => rank))
  return {
    worldSize: headers[0]?.worldSize ?? ranks.size,
    restartCount: steps.restartCount,
    ranks: [...ranks]
      .sort((a, b) => a - b)
      .map((rank): RankView => ({ rank, state: 'ended', waitsFor: [], seconds: 0 })),
  }
}

function pointsOf({ numbers, ranks, hasSteps }: RecordedSteps) {
  if (!hasSteps) return []
  const size = Math.ceil(numbers.length / MOST_POINTS)
  const points: ChartPoint[] = []
  for (let at = 0; at < numbers.length; at += size) {
    const group = numbers.slice(at, at + size)
    const steps = group.flatMap((number) => ranks.map(({ windows }) => windows.get(number)!))
    const losses = steps.map(({ loss = NaN }) => loss).filter(Number.isFinite)
    points.push({
      at: group.at(-1)!,
      loss: losses.length === 0 ? undefined : mean(losses),
      stepsPerSecond: 1000 / mean(steps.map(({ start, end }) => end - start)),
    })
  }
  return points
}

function mean(values: readonly number[]) {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}
