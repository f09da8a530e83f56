import type { Span } from '../spans.ts'
import { balancedIdle } from './balanced-idle.ts'
import { alignClocks, hostOf } from './clocks.ts'
import { criticalPath, type PathShare } from './critical-path.ts'
import { Arrivals, divideWindow, type Piece, type StepPart, type Window } from './division.ts'
import type { SpanFileReader } from './span-file.ts'
import type { StepRange } from './rank-trace.ts'
import type { TracedRun } from './trace-folder.ts'

/**
 * Where the time of steps goes. `bubble` is the waiting that the schedule of a pipeline has in itself,
 * while it fills and drains, `imbalance` any other waiting for ranks that are not there yet,
 * `communication` the transfer of messages and collectives that nothing hides. `overhead` is everything else: copies
 * into and out of buffers, calls, checkpoints, garbage collection, and the program's own code.
 */
export const timeShares = [
  'compute',
  'bubble',
  'imbalance',
  'communication',
  'input',
  'overhead',
] as const
export type TimeShare = (typeof timeShares)[number]

/** Milliseconds of a step, of each part. */
export type TimeShares = Readonly<Record<TimeShare, number>>

/** What a rank does in the mean of the steps. */
export interface RankSummary {
  readonly rank: number
  readonly host: string
  /** Milliseconds. */
  readonly step: number
  readonly shares: TimeShares
  /** Milliseconds of a step for which other ranks wait, in the end, because this one is busy. */
  readonly causes: number
}

/** The summary of a trace. Times are milliseconds of a step, in the mean of the steps. */
export interface TraceSummary {
  readonly runId: string
  /** The number of ranks, hosts and attempts whose files there are. */
  readonly ranks: number
  readonly hosts: number
  readonly attempts: number
  /** The steps that the summary is about; undefined if the program reports none: then it is all of it. */
  readonly steps: (StepRange & { readonly count: number }) | undefined
  readonly byRank: readonly RankSummary[]
  /** Of all ranks together. */
  readonly mean: Pick<RankSummary, 'step' | 'shares'>
  /**
   * The parts of the longest chain of things that wait for each other, from the end of each step back to
   * its beginning: a step becomes shorter only if one of these does.
   */
  readonly criticalPath: readonly PathShare[]
  /** The rank for which the others wait longest; undefined if nobody waits. */
  readonly slowest: number | undefined
}

/** Spans that are looked at: with more, the last steps alone. */
const MOST_SPANS = 600_000

interface RankSteps {
  readonly file: SpanFileReader
  readonly offset: number
  /** By their numbers; without any, one that is everything. */
  readonly windows: ReadonlyMap<number, Window>
  readonly perStep: number
}

/**
 * Summarizes the last attempt of a run.
 *
 * @param range - of steps; default: the last ones, as many as a summary can be made of at once
 * @returns undefined when there is nothing to summarize
 */
export function summarizeTrace(
  { runId, files }: TracedRun,
  range?: StepRange,
): TraceSummary | undefined {
  const last = Math.max(0, ...files.map(({ header }) => header.restartCount))
  const own = files.filter(({ header }) => header.restartCount === last)
  const offsets = alignClocks(own)
  const ranks = own.map((file) => stepsOf(file, offsets.get(hostOf(file.header)) ?? 0))
  const numbers = chooseSteps(ranks, range)
  if (numbers.length === 0) return undefined
  const total = new Totals(own.map(({ header }) => ({ rank: header.rank, host: header.host })))
  const spans = ranks.map((rank) => spansOf(rank, numbers))
  const arrivals = new Arrivals()
  for (const each of spans.flat()) arrivals.add(each)
  const cursors = spans.map((each) => new Cursor(each))
  for (const number of numbers) {
    const windows = ranks.map((rank) => rank.windows.get(number)!)
    const inStep = windows.map((window, i) => cursors[i]!.overlapping(window))
    const pieces = windows.map((window, i) => divideWindow(window, inStep[i]!, arrivals))
    total.addStep(windows, pieces, balancedIdle(inStep, windows), arrivals)
  }
  const hasSteps = numbers[0] !== ALL
  return {
    runId,
    ranks: own.length,
    hosts: new Set(own.map(({ header }) => hostOf(header))).size,
    attempts: new Set(files.map(({ header }) => header.restartCount)).size,
    steps: hasSteps
      ? { first: numbers[0]!, last: numbers.at(-1)!, count: numbers.length }
      : undefined,
    ...total.means(numbers.length),
  }
}

/** Stands for the whole trace of a program that reports no steps. */
const ALL = 0

function stepsOf(file: SpanFileReader, offset: number): RankSteps {
  const windows = new Map<number, Window>()
  let [count, from, to] = [0, Infinity, -Infinity]
  for (const { kind, step, start, end } of file.spans()) {
    count++
    if (kind === 'F' || kind === 'batch' || kind === 'input') from = Math.min(from, start)
    if (kind !== 'gc') to = Math.max(to, end)
    if (kind === 'step' && step !== undefined) {
      windows.set(step, { start: start + offset, end: end + offset })
    }
  }
  const perStep = count / Math.max(1, windows.size)
  if (windows.size === 0 && from < to) {
    windows.set(ALL, { start: from + offset, end: to + offset })
  }
  return { file, offset, windows, perStep }
}

/** The numbers of steps that all ranks have, in their order: those asked for, or as many as may be. */
function chooseSteps(ranks: readonly RankSteps[], range: StepRange | undefined): number[] {
  const [first, ...others] = ranks
  if (first === undefined) return []
  const { first: from, last: to } = range ?? { first: 0, last: Infinity }
  const common = [...first.windows.keys()]
    .filter((number) => number === ALL || (number >= from && number <= to))
    .filter((number) => others.every(({ windows }) => windows.has(number)))
    .sort((a, b) => a - b)
  const perStep = ranks.reduce((sum, rank) => sum + rank.perStep, 0)
  return common.slice(-Math.max(1, Math.floor(MOST_SPANS / Math.max(1, perStep))))
}

/** The spans of a rank around some steps, on the common clock, in the order of their starts. */
function spansOf({ file, offset, windows }: RankSteps, numbers: readonly number[]): Span[] {
  const start = windows.get(numbers[0]!)!.start
  const end = windows.get(numbers.at(-1)!)!.end
  const spans: Span[] = []
  for (const span of file.spans()) {
    const shifted = { ...span, start: span.start + offset, end: span.end + offset }
    const until = shifted.end + (span.noticed ?? 0)
    if (span.kind !== 'step' && until >= start && shifted.start <= end) spans.push(shifted)
  }
  return spans.sort((a, b) => a.start - b.start)
}

/** Finds the spans of windows that follow each other. */
class Cursor {
  readonly #spans: readonly Span[]
  #open: Span[] = []
  #next = 0

  constructor(spans: readonly Span[]) {
    this.#spans = spans
  }

  overlapping({ start, end }: Window): readonly Span[] {
    while (this.#next < this.#spans.length && this.#spans[this.#next]!.start < end) {
      this.#open.push(this.#spans[this.#next++]!)
    }
    this.#open = this.#open.filter((span) => span.end + (span.noticed ?? 0) > start)
    return this.#open
  }
}

/** What counts as which. */
export const shareOfPart: Readonly<Record<Exclude<StepPart, 'waiting'>, TimeShare>> = {
  input: 'input',
  batch: 'input',
  forward: 'compute',
  backward: 'compute',
  update: 'compute',
  transfer: 'communication',
  alloc: 'overhead',
  pack: 'overhead',
  call: 'overhead',
  wakeUp: 'overhead',
  reduce: 'overhead',
  unpack: 'overhead',
  checkpoint: 'overhead',
  gc: 'overhead',
  unexplained: 'overhead',
}

/** Sums over steps. */
class Totals {
  readonly #places: readonly { readonly rank: number; readonly host: string }[]
  readonly #steps: number[]
  readonly #shares: Record<TimeShare, number>[]
  readonly #causes = new Map<number, number>()
  readonly #path = new Map<string, PathShare>()

  constructor(places: readonly { readonly rank: number; readonly host: string }[]) {
    this.#places = places
    this.#steps = places.map(() => 0)
    this.#shares = places.map(
      () => Object.fromEntries(timeShares.map((share) => [share, 0])) as Record<TimeShare, number>,
    )
  }

  /**
   * @param pieces - of each rank, as `windows` are
   * @param idle - that of a pipeline's schedule, on each rank
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
      let waiting = 0
      for (const { part, start, end } of own) {
        if (part === 'waiting') waiting += end - start
        else shares[shareOfPart[part]] += end - start
      }
      const bubble = Math.min(waiting, idle?.[i] ?? 0)
      shares.bubble += bubble
      shares.imbalance += waiting - bubble
    }
    const ranks = this.#places.map(({ rank }) => rank)
    const { path, causes } = criticalPath(ranks, windows, pieces, arrivals)
    for (const share of path) {
      const key = `${share.rank} ${share.part}`
      const milliseconds = (this.#path.get(key)?.milliseconds ?? 0) + share.milliseconds
      this.#path.set(key, { ...share, milliseconds })
    }
    for (const [rank, time] of causes) this.#causes.set(rank, (this.#causes.get(rank) ?? 0) + time)
  }

  means(steps: number): Pick<TraceSummary, 'byRank' | 'mean' | 'criticalPath' | 'slowest'> {
    const scaled = (shares: Readonly<Record<TimeShare, number>>, by: number): TimeShares =>
      Object.fromEntries(timeShares.map((share) => [share, shares[share] / by])) as TimeShares
    const byRank = this.#places.map(({ rank, host }, i): RankSummary => ({
      ...{ rank, host, step: this.#steps[i]! / steps, shares: scaled(this.#shares[i]!, steps) },
      causes: (this.#causes.get(rank) ?? 0) / steps,
    }))
    const all = Object.fromEntries(
      timeShares.map((share) => [share, sum(byRank.map(({ shares }) => shares[share]))]),
    ) as TimeShares
    const slowest = byRank.reduce((most, each) => (each.causes > most.causes ? each : most))
    return {
      byRank,
      mean: {
        step: sum(byRank.map(({ step }) => step)) / byRank.length,
        shares: scaled(all, byRank.length),
      },
      criticalPath: [...this.#path.values()]
        .map((share) => ({ ...share, milliseconds: share.milliseconds / steps }))
        .sort((a, b) => b.milliseconds - a.milliseconds),
      slowest: slowest.causes > 0 ? slowest.rank : undefined,
    }
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
