import type { StepRange } from '@tsrun/distributed/record'
import { balancedIdle } from './balanced-idle.ts'
import { hostOf } from './clocks.ts'
import { addCriticalPath, type PathShare, type PathTotals } from './critical-path.ts'
import { Arrivals, divideWindow, noticedEnd, Sweep, type Piece, type Window } from './division.ts'
import { RecordedSteps } from './recorded-steps.ts'
import { sharesFrom, sharesOf, timeShares, type TimeShare, type TimeShares } from './shares.ts'
import type { TracedRun } from './traced-run.ts'

/** The mean step of a rank. */
export interface RankSummary {
  readonly rank: number
  readonly host: string
  /** Milliseconds. */
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
  return summarizeSteps(new RecordedSteps(run), range)
}

/** Summarizes steps that have been found already. */
export function summarizeSteps(
  recorded: RecordedSteps,
  range?: StepRange,
): TraceSummary | undefined {
  const { runId, ranks, attempts, hasSteps } = recorded
  const numbers = chooseSteps(recorded, range)
  if (numbers.length === 0) return undefined
  const total = new Totals(ranks.map(({ header }) => ({ rank: header.rank, host: header.host })))
  const spans = ranks.map(({ windows, spansBetween }) =>
    spansBetween(windows.get(numbers[0]!)!.start, windows.get(numbers.at(-1)!)!.end),
  )
  const arrivals = new Arrivals()
  for (const each of spans.flat()) arrivals.add(each)
  const sweeps = spans.map((each) => new Sweep(each, noticedEnd))
  for (const number of numbers) {
    const windows = ranks.map((rank) => rank.windows.get(number)!)
    const inStep = windows.map((window, i) => sweeps[i]!.overlapping(window))
    const pieces = windows.map((window, i) => divideWindow(window, inStep[i]!, arrivals))
    total.addStep(windows, pieces, balancedIdle(inStep, windows), arrivals)
  }
  return {
    runId,
    ranks: ranks.length,
    hosts: new Set(ranks.map(({ header }) => hostOf(header))).size,
    attempts,
    steps: hasSteps
      ? { first: numbers[0]!, last: numbers.at(-1)!, count: numbers.length }
      : undefined,
    ...total.means(numbers.length),
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

class Totals {
  readonly #places: readonly Pick<RankSummary, 'rank' | 'host'>[]
  readonly #steps: number[]
  readonly #shares: Record<TimeShare, number>[]
  readonly #critical: PathTotals = { path: new Map(), causes: new Map() }

  constructor(places: readonly Pick<RankSummary, 'rank' | 'host'>[]) {
    this.#places = places
    this.#steps = places.map(() => 0)
    this.#shares = places.map(() => sharesFrom(() => 0))
  }

  /**
   * @param pieces - by rank, in the order of `windows`
   * @param idle - by rank, milliseconds of waiting inherent in the pipeline schedule
   */
  addStep(
    windows: readonly Window[],
    pieces: readonly (readonly Piece[])[],
    idle: readonly number[] | undefined,
    arrivals: Arrivals,
  ): void {
    for (const [i, own] of pieces.entries()) {
      const shares = this.#shares[i]!
      this.#steps[i]! += windows[i]!.end - windows[i]!.start
      const added = sharesOf(own, idle?.[i] ?? 0)
      for (const share of timeShares) shares[share] += added[share]
    }
    const ranks = this.#places.map(({ rank }) => rank)
    addCriticalPath(ranks, windows, pieces, arrivals, this.#critical)
  }

  means(steps: number): Pick<TraceSummary, 'byRank' | 'mean' | 'criticalPath' | 'slowest'> {
    const { path, causes } = this.#critical
    const byRank = this.#places.map(({ rank, host }, i): RankSummary => ({
      rank,
      host,
      step: this.#steps[i]! / steps,
      shares: sharesFrom((share) => this.#shares[i]![share] / steps),
      causes: (causes.get(rank) ?? 0) / steps,
    }))
    const mean = (of: (rank: RankSummary) => number): number =>
      byRank.reduce((sum, rank) => sum + of(rank), 0) / byRank.length
    const slowest = byRank.reduce((most, each) => (each.causes > most.causes ? each : most))
    return {
      byRank,
      mean: {
        step: mean(({ step }) => step),
        shares: sharesFrom((share) => mean(({ shares }) => shares[share])),
      },
      criticalPath: [...path.values()]
        .map((share) => ({ ...share, milliseconds: share.milliseconds / steps }))
        .sort((a, b) => b.milliseconds - a.milliseconds),
      slowest: slowest.causes > 0 ? slowest.rank : undefined,
    }
  }
}
