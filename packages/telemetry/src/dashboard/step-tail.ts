import { closeSync, fstatSync, openSync, readdirSync, readSync } from 'node:fs'
import { join } from 'node:path'
import type { Span } from '../spans.ts'
import { Arrivals, divideWindow, type Piece, type Window } from '../trace/division.ts'
import { balancedIdle, balancedSchedule } from '../trace/balanced-idle.ts'
import { SpanDecoder, SpanFileReader } from '../trace/span-file.ts'
import { shareOfPart, timeShares, type TimeShare } from '../trace/summary.ts'
import {
  barKinds,
  type Bar,
  type CollectiveView,
  type StepRankView,
  type StepView,
} from './views.ts'

/** The most bytes of a file that one look reads: a page may be opened long after the job has begun. */
const LOOK_BYTES = 16 * 2 ** 20
/**
 * Steps of which spans are kept: a few, and those of some time, in milliseconds. Each rank writes its spans
 * every 250 ms, at moments of its own, so that the last short steps of two ranks may not be the same.
 */
const KEPT_STEPS = 4
const KEPT_TIME = 2000
/** The most spans of a rank that are kept. */
const KEPT_SPANS = 40_000
/** Bars shorter than this part of a step are not sent. */
const SHORTEST = 1 / 4000
/** The most collectives of a rank that are sent. */
const MOST_COLLECTIVES = 60

/** Follows the traces that the ranks of this host write during an attempt of a job, step by step. */
export class StepTail {
  readonly #folder: string
  readonly #attempt: number
  readonly #files = new Map<number, SpanTail>()
  #shown: number | undefined

  /** @param folder - that of the run; see `spansFolder` */
  constructor(folder: string, attempt: number) {
    this.#folder = folder
    this.#attempt = attempt
  }

  /** The last step that these ranks have ended; undefined if there is no new one. */
  look(ranks: readonly number[]): StepView | undefined {
    this.#open(ranks)
    const files = ranks.toSorted((a, b) => a - b).map((rank) => this.#files.get(rank))
    if (files.length === 0) return undefined
    const opened = files.filter((file) => file !== undefined)
    for (const file of opened) file.read()
    if (opened.length < files.length) return undefined
    const common = [...opened[0]!.windows.keys()].filter((step) =>
      opened.every(({ windows }) => windows.has(step)),
    )
    const step = common.at(-1)
    if (step === undefined || step === this.#shown) return undefined
    this.#shown = step
    return viewOf(step, opened)
  }

  #open(ranks: readonly number[]): void {
    if (ranks.every((rank) => this.#files.has(rank))) return
    for (const name of namesIn(this.#folder)) {
      const [, attempt, rank] = /^attempt-(\d+)\.rank-(\d+)\.\d+\.spans$/.exec(name) ?? []
      const number = Number(rank)
      if (Number(attempt) !== this.#attempt || this.#files.has(number)) continue
      if (!ranks.includes(number)) continue
      try {
        this.#files.set(number, new SpanTail(join(this.#folder, name)))
      } catch {
        // Its rank has not written the header yet.
      }
    }
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

/** The newest spans of the file of one rank. */
class SpanTail {
  readonly rank: number
  /** The last steps that have ended, by number. */
  readonly windows = new Map<number, Window>()
  spans: Span[] = []
  readonly #path: string
  readonly #decoder: SpanDecoder
  #at: number
  #isDamaged = false

  /** @throws Error when it is no such file */
  constructor(path: string) {
    const { header, begin } = new SpanFileReader(path)
    this.#path = path
    this.rank = header.rank
    this.#decoder = new SpanDecoder(header)
    this.#at = begin
  }

  /** Reads what has been added. */
  read(): void {
    const bytes = this.#added()
    const records = this.#decoder.decode(bytes)
    for (;;) {
      const { value, done } = records.next()
      if (done === true) {
        this.#isDamaged = value === undefined
        this.#at += value ?? 0
        break
      }
      if (value.kind === 'step' && value.step !== undefined) this.windows.set(value.step, value)
      else this.spans.push(value)
    }
    const last = Math.max(...Array.from(this.windows.values(), ({ end }) => end))
    for (const [step, { end }] of [...this.windows].slice(0, -KEPT_STEPS)) {
      if (end < last - KEPT_TIME) this.windows.delete(step)
    }
    const [oldest] = this.windows.values()
    const from = oldest?.start ?? -Infinity
    const spans = this.spans.filter(({ end }) => end >= from)
    this.spans = spans.slice(-KEPT_SPANS)
    if (this.spans.length === spans.length) return
    // Steps of which spans are missing are not shown.
    const complete = this.spans[0]!.end
    for (const [step, { start }] of this.windows) if (start < complete) this.windows.delete(step)
  }

  #added(): Buffer {
    if (this.#isDamaged) return Buffer.alloc(0)
    const fd = openSync(this.#path, 'r')
    try {
      const added = Math.max(0, fstatSync(fd).size - this.#at)
      const bytes = Buffer.allocUnsafe(Math.min(LOOK_BYTES, added))
      return bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, this.#at))
    } finally {
      closeSync(fd)
    }
  }
}

function viewOf(step: number, files: readonly SpanTail[]): StepView {
  const windows = files.map((file) => file.windows.get(step)!)
  const spans = files.map((file, i) => overlapping(file.spans, windows[i]!))
  const arrivals = new Arrivals()
  for (const span of spans.flat()) arrivals.add(span)
  const idle = balancedIdle(spans, windows)
  const ideal = balancedSchedule(spans, windows)
  const start = Math.min(...windows.map((window) => window.start))
  const milliseconds = Math.max(...windows.map(({ end }) => end)) - start
  const first = Math.min(...spans.flat().flatMap(({ kind, start: at }) => (kind === 'F' ? at : [])))
  // The ideal begins with the first computation.
  const offset = Math.max(0, first - start)
  return {
    step,
    milliseconds,
    idealMilliseconds: ideal && Math.max(...ideal.flat().map(({ end }) => end)),
    ranks: files.map(({ rank }, i): StepRankView => {
      const window = windows[i]!
      const pieces = divideWindow(window, spans[i]!, arrivals)
      return {
        rank,
        milliseconds: window.end - window.start,
        shares: sharesOf(pieces, idle?.[i] ?? 0),
        bars: barsOf(spans[i]!, pieces, start, milliseconds),
        ideal: ideal?.[i]?.map(({ kind, microbatch, ...action }): Bar => [
          barKinds.indexOf(kind as 'F'),
          rounded(offset + action.start),
          rounded(offset + action.end),
          microbatch,
        ]),
        collectives: collectivesOf(spans[i]!, start),
      }
    }),
  }
}

function overlapping(spans: readonly Span[], { start, end }: Window): Span[] {
  return spans
    .filter((span) => span.start < end && span.end + (span.noticed ?? 0) > start)
    .sort((a, b) => a.start - b.start)
}

function sharesOf(pieces: readonly Piece[], idle: number): Record<TimeShare, number> {
  const shares = Object.fromEntries(timeShares.map((share) => [share, 0])) as Record<
    TimeShare,
    number
  >
  let waiting = 0
  for (const { part, start, end } of pieces) {
    if (part === 'waiting') waiting += end - start
    else shares[shareOfPart[part]] += end - start
  }
  shares.bubble = Math.min(waiting, idle)
  shares.imbalance = waiting - shares.bubble
  return shares
}

const computations: ReadonlySet<string> = new Set(['F', 'B', 'I', 'W', 'optimizer'])

/** The computations with their micro-batches, and what the pieces say of the time between them. */
function barsOf(
  spans: readonly Span[],
  pieces: readonly Piece[],
  origin: number,
  milliseconds: number,
): Bar[] {
  const bars: Bar[] = []
  const add = (kind: (typeof barKinds)[number], { start, end }: Window, microbatch = -1): void => {
    if (end - start < milliseconds * SHORTEST) return
    bars.push([barKinds.indexOf(kind), rounded(start - origin), rounded(end - origin), microbatch])
  }
  for (const span of spans) {
    if (computations.has(span.kind)) add(span.kind as 'F', span, span.microbatch)
  }
  let last: { readonly kind: (typeof barKinds)[number]; start: number; end: number } | undefined
  const flush = (): void => {
    if (last !== undefined) add(last.kind, last)
    last = undefined
  }
  for (const { part, start, end } of pieces) {
    const share = part === 'waiting' ? 'waiting' : shareOfPart[part]
    const kind =
      share === 'compute' || share === 'bubble' || share === 'imbalance' ? undefined : share
    if (last?.kind !== kind) flush()
    if (kind === undefined) continue
    if (last === undefined) last = { kind, start, end }
    else last.end = end
  }
  flush()
  return bars
}

function collectivesOf(spans: readonly Span[], origin: number): CollectiveView[] {
  return spans
    .filter(({ kind }) => kind === 'collective')
    .slice(0, MOST_COLLECTIVES)
    .map(({ name = '', bytes = 0, start, end, waited = 0 }) => ({
      ...{ name, bytes, ready: rounded(start - origin) },
      ...{ moving: rounded(start - origin + waited), end: rounded(end - origin) },
    }))
}

/** To microseconds. */
function rounded(milliseconds: number): number {
  return Math.round(1000 * milliseconds) / 1000
}
