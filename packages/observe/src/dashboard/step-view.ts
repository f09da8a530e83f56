import type { Span } from '@tsrun/distributed/record'
import {
  Arrivals,
  divideWindow,
  noticedEnd,
  sharesOf,
  sweep,
  type Piece,
  type Window,
} from '../trace/division.ts'
import { balancedSchedule } from '../trace/balanced-schedule.ts'
import { shareOfPart } from '../trace/shares.ts'
import {
  barKinds,
  type Bar,
  type BarKind,
  type CollectiveView,
  type StepRankView,
  type StepView,
} from './views.ts'

/** Bars shorter than this fraction of a step are not sent. */
const SHORTEST = 1 / 4000
const MOST_COLLECTIVES = 60

/** The spans of a rank around a step. */
export interface RankStep {
  readonly rank: number
  readonly window: Window
  readonly spans: readonly Span[]
}

/** Makes the page's view of a step. The times of all ranks must be on one clock. */
export function stepView(step: number, ranks: readonly RankStep[]): StepView {
  const windows = ranks.map(({ window }) => window)
  const spans = ranks.map((rank) => sweep(rank.spans, noticedEnd)(rank.window))
  const arrivals = new Arrivals()
  for (const span of spans.flat()) arrivals.add(span)
  const ideal = balancedSchedule(spans, windows)
  const start = Math.min(...windows.map((window) => window.start))
  const milliseconds = Math.max(...windows.map(({ end }) => end)) - start
  let first = Infinity
  for (const { kind, start: at } of spans.flat()) if (kind === 'F') first = Math.min(first, at)
  // Align the ideal schedule with the first forward computation.
  const offset = Math.max(0, first - start)
  return {
    step,
    milliseconds,
    idealMilliseconds: ideal?.length,
    ranks: ranks.map(({ rank, window }, i): StepRankView => {
      const pieces = divideWindow(window, spans[i]!, arrivals)
      return {
        rank,
        milliseconds: window.end - window.start,
        shares: sharesOf(pieces, ideal?.idle[i] ?? 0),
        bars: barsOf(spans[i]!, pieces, start, milliseconds),
        ideal: ideal?.actions[i]!.map(({ kind, microbatch, ...action }): Bar => [
          barKinds.indexOf(kind as 'F'),
          rounded(offset + action.start),
          rounded(offset + action.end),
          microbatch,
        ]),
        collectives: collectivesOf(spans[i]!, start, arrivals),
      }
    }),
  }
}

const computations: ReadonlySet<string> = new Set(['F', 'B', 'I', 'W', 'optimizer'])

function barsOf(
  spans: readonly Span[],
  pieces: readonly Piece[],
  origin: number,
  milliseconds: number,
) {
  const bars: Bar[] = []
  const add = (kind: BarKind, { start, end }: Window, microbatch = -1) => {
    if (end - start < milliseconds * SHORTEST) return
    bars.push([barKinds.indexOf(kind), rounded(start - origin), rounded(end - origin), microbatch])
  }
  for (const span of spans) {
    if (computations.has(span.kind)) add(span.kind as 'F', span, span.microbatch)
  }
  let last: { readonly kind: BarKind; start: number; end: number } | undefined
  const flush = () => {
    if (last !== undefined) add(last.kind, last)
    last = undefined
  }
  for (const { part, start, end } of pieces) {
    const share = part === 'waiting' ? 'waiting' : shareOfPart[part]
    const kind = share === 'compute' ? undefined : share
    if (last?.kind !== kind) flush()
    if (kind === undefined) continue
    if (last === undefined) last = { kind, start, end }
    else last.end = end
  }
  flush()
  return bars
}

function collectivesOf(
  spans: readonly Span[],
  origin: number,
  arrivals: Arrivals,
): CollectiveView[] {
  return spans
    .filter(({ kind }) => kind === 'collective')
    .slice(0, MOST_COLLECTIVES)
    .map((span) => {
      const { name = '', bytes = 0, start, end } = span
      const arrived = Math.min(end, arrivals.of(span)?.start ?? start)
      return {
        name,
        bytes,
        ready: rounded(start - origin),
        arrived: rounded(arrived - origin),
        end: rounded(end - origin),
      }
    })
}

function rounded(milliseconds: number) {
  return Math.round(1000 * milliseconds) / 1000
}
