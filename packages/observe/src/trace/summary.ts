import type { StepRange } from '@tsrun/distributed/record'
import { balancedSchedule } from './balanced-schedule.ts'
import { hostOf } from './clocks.ts'
import { addCriticalPath, type PathShare, type PathTotals } from './critical-path.ts'
import { Arrivals, divideWindow, noticedEnd, sharesOf, sweep } from './division.ts'
import { sharesFrom, timeShares, type TimeShares } from './shares.ts'
import { readSteps, type RecordedSteps, type TracedRun } from './traced-run.ts'

/** The mean step of a rank. */
export interface RankSummary {
  readonly rank: number
  readonly host: string
  /** Mean duration of a step in milliseconds. */
  readonly step: number
  readonly shares: TimeShares
  /** Milliseconds of a step in which other ranks wait for this rank, directly or indirectly. */
  readonly causes: number
}

/** The summary of a trace. Times are milliseconds of the mean step. */
export interface TraceSummary {
  readonly runId: string
  /** Number of ranks, hosts and attempts that have files. */
  readonly ranks: number
  readonly hosts: number
  readonly attempts: number
  /** The summarized steps; undefined if the program reports none, so the whole run is summarized. */
  readonly steps: (StepRange & { readonly count: number }) | undefined
  readonly byRank: readonly RankSummary[]
  /** Mean over all ranks. */
  readonly mean: Pick<RankSummary, 'step' | 'shares'>
  /**
   * The longest chain of dependent work in a step, from its end back to its beginning. A step gets
   * faster only if a part of this chain does.
   */
  readonly criticalPath: readonly PathShare[]
  /** The rank that others wait for longest; undefined if none waits. */
  readonly slowest: number | undefined
}

/**
 * Summarizes the last attempt of a run.
 *
 * @param range - the steps; default: as many of the last steps as fit the limit on spans
 * @returns undefined if there is nothing to summarize
 */
export function summarizeTrace(run: TracedRun, range?: StepRange): TraceSummary | undefined {
  return summarizeSteps(readSteps(run), range)
}

/** Summarizes steps that have been found already. */
export function summarizeSteps(
  recorded: RecordedSteps,
  range?: StepRange,
): TraceSummary | undefined {
  const { runId, ranks, attempts, hasSteps } = recorded
  const numbers = chooseSteps(recorded, range)
  if (numbers.length === 0) return undefined
  const totals = ranks.map(() => ({ step: 0, shares: sharesFrom(() => 0) }))
  const critical: PathTotals = { path: new Map(), causes: new Map() }
  const spans = ranks.map(({ windows, spansBetween }) =>
    spansBetween(windows.get(numbers[0]!)!.start, windows.get(numbers.at(-1)!)!.end),
  )
  const arrivals = new Arrivals()
  for (const each of spans.flat()) arrivals.add(each)
  const sweeps = spans.map((each) => sweep(each, noticedEnd))
  const rankNumbers = ranks.map(({ header }) => header.rank)
  for (const number of numbers) {
    const windows = ranks.map((rank) => rank.windows.get(number)!)
    const inStep = windows.map((window, i) => sweeps[i]!(window))
    const pieces = windows.map((window, i) => divideWindow(window, inStep[i]!, arrivals))
    const balanced = balancedSchedule(inStep, windows)
    for (const [i, { start, end }] of windows.entries()) {
      const total = totals[i]!
      total.step += end - start
      const added = sharesOf(pieces[i]!, balanced?.idle[i] ?? 0)
      for (const share of timeShares) total.shares[share] += added[share]
    }
    addCriticalPath(rankNumbers, windows, pieces, arrivals, critical)
  }
  const { length: count } = numbers
  const byRank = ranks.map(({ header: { rank, host } }, i): RankSummary => ({
    rank,
    host,
    step: totals[i]!.step / count,
    shares: sharesFrom((share) => totals[i]!.shares[share] / count),
    causes: (critical.causes.get(rank) ?? 0) / count,
  }))
  const mean = (of: (rank: RankSummary) => number) =>
    byRank.reduce((sum, rank) => sum + of(rank), 0) / byRank.length
  const slowest = byRank.reduce((most, each) => (each.causes > most.causes ? each : most))
  return {
    runId,
    ranks: ranks.length,
    hosts: new Set(ranks.map(({ header }) => hostOf(header))).size,
    attempts,
    steps: hasSteps ? { first: numbers[0]!, last: numbers.at(-1)!, count } : undefined,
    byRank,
    mean: {
      step: mean(({ step }) => step),
      shares: sharesFrom((share) => mean(({ shares }) => shares[share])),
    },
    criticalPath: [...critical.path.values()]
      .map((share) => ({ ...share, milliseconds: share.milliseconds / count }))
      .sort((a, b) => b.milliseconds - a.milliseconds),
    slowest: slowest.causes > 0 ? slowest.rank : undefined,
  }
}

/** Maximum spans in a summary. If there are more, only the last steps are summarized. */
const MOST_SPANS = 600_000

function chooseSteps(
  { numbers, spansPerStep, hasSteps }: RecordedSteps,
  range: StepRange | undefined,
): readonly number[] {
  const chosen =
    range === undefined || !hasSteps
      ? numbers
      : numbers.filter((number) => number >= range.first && number <= range.last)
  return chosen.slice(-Math.max(1, Math.floor(MOST_SPANS / Math.max(1, spansPerStep))))
}
