import { isOperationKind, type Span, type SpanKind } from '@tsrun/distributed/record'
import { shareOfPart, sharesFrom, type StepPart, type TimeShare } from './shares.ts'

/** An interval in milliseconds. */
export interface Window {
  readonly start: number
  readonly end: number
}

/** An interval of a window that belongs to one part. */
export interface Piece extends Window {
  readonly part: StepPart
  /** Whether a collective runs at the same time as the main thread. */
  readonly isBesideCollective: boolean
  /** The operation that the rank waits for, if known. */
  readonly operation: Span | undefined
}

/** Maps the kind of a main thread span to the part of a step. */
export const partOfKind: Readonly<Partial<Record<SpanKind, StepPart>>> = {
  input: 'input',
  batch: 'batch',
  F: 'forward',
  B: 'backward',
  I: 'backward',
  W: 'backward',
  optimizer: 'update',
  pack: 'pack',
  unpack: 'unpack',
  reduce: 'reduce',
  alloc: 'alloc',
  call: 'call',
  checkpoint: 'checkpoint',
  gc: 'gc',
}

/** The last rank to arrive at a collective. */
export interface Arrival {
  readonly rank: number
  readonly start: number
}

/** Collects which rank arrives last at each collective. `divideWindow` uses it. */
export class Arrivals {
  readonly #last = new Map<string, Arrival>()

  add({ kind, rank, start, group, sequence }: Span): void {
    if (kind !== 'collective') return
    const key = `${group} ${sequence}`
    const last = this.#last.get(key)
    if (last === undefined || start > last.start) this.#last.set(key, { rank, start })
  }

  /** Returns the last arrival at the collective of this span. */
  of({ group, sequence }: Span): Arrival | undefined {
    return this.#last.get(`${group} ${sequence}`)
  }
}

/** An operation, with the time at which all of its ranks have arrived. */
interface Pending extends Window {
  readonly span: Span
  readonly ready: number
  /** Time at which the main thread noticed the end of the operation. */
  readonly noticed: number
}

/**
 * Divides a window of one rank, such as a step, into pieces whose lengths add up to the length of the
 * window.
 *
 * @param spans - all spans of this rank that overlap the window
 * @param arrivals - the last arrivals at the collectives of all ranks
 */
export function divideWindow(window: Window, spans: readonly Span[], arrivals: Arrivals): Piece[] {
  const main: Span[] = []
  const operations: Pending[] = []
  const cuts = new Set<number>()
  const cut = (at: number) => {
    if (at > window.start && at < window.end) cuts.add(at)
  }
  for (const span of spans) {
    const { kind, start, end, waited = 0, noticed = 0 } = span
    if (kind === 'wait' || partOfKind[kind] !== undefined) {
      main.push(span)
      for (const at of [start, end, start + waited]) cut(at)
    } else if (isOperationKind(kind)) {
      const there = kind === 'collective' ? (arrivals.of(span)?.start ?? start) : start + waited
      const pending = { span, start, end, ready: Math.min(there, end), noticed: end + noticed }
      operations.push(pending)
      for (const at of [start, pending.ready, end, pending.noticed]) cut(at)
    }
  }
  const times = [window.start, ...[...cuts].sort((a, b) => a - b), window.end]
  const threads = sweep(main, ({ end }) => end)
  const engine = sweep(operations, ({ noticed }) => noticed)
  const pieces: Piece[] = []
  for (let i = 0; i + 1 < times.length; i++) {
    const piece = { start: times[i]!, end: times[i + 1]! }
    const at = (piece.start + piece.end) / 2
    const active = engine(piece)
    const isBesideCollective = active.some(
      ({ span, end: ended }) => span.kind === 'collective' && at < ended,
    )
    const part = partAt(at, threads(piece), active)
    pieces.push({ ...piece, isBesideCollective, ...part })
  }
  return pieces
}

function partAt(
  at: number,
  main: readonly Span[],
  operations: readonly Pending[],
): Pick<Piece, 'part' | 'operation'> {
  const inner = innermost(main)
  const part = inner && partOfKind[inner.kind]
  if (part !== undefined) return { part, operation: undefined }
  const pending = operations.filter(({ end }) => at < end)
  const of = (kind: SpanKind) => pending.filter(({ span }) => span.kind === kind)
  const collectives = of('collective')
  if (collectives.length > 0) return stateOf(at, collectives)
  if (inner?.waited !== undefined) {
    const ready = inner.start + inner.waited
    const receives = of('recv').sort(
      (a, b) => Math.abs(a.ready - ready) - Math.abs(b.ready - ready),
    )
    if (at < ready) return { part: 'waiting', operation: receives[0]?.span }
    if (receives.length > 0) return { part: 'transfer', operation: receives[0]!.span }
  } else if (inner !== undefined) {
    const sends = of('send')
    if (sends.length > 0) return stateOf(at, sends)
  }
  const isEnding = operations.some(
    ({ span, end, noticed }) => span.kind === 'collective' && end <= at && at < noticed,
  )
  return {
    part: inner !== undefined || isEnding ? 'wakeUp' : 'unexplained',
    operation: undefined,
  }
}

/** Returns `transfer` if the peers of any operation have arrived; otherwise `waiting`. */
function stateOf(at: number, pending: readonly Pending[]): Pick<Piece, 'part' | 'operation'> {
  const moving = pending.find(({ ready }) => ready <= at)
  if (moving !== undefined) return { part: 'transfer', operation: moving.span }
  const next = pending.reduce((first, each) => (each.ready < first.ready ? each : first))
  return { part: 'waiting', operation: next.span }
}

/** Finds the innermost span among nested spans of one thread. */
function innermost(spans: readonly Span[]) {
  return spans.reduce<Span | undefined>((inner, span) => {
    const isInside =
      inner === undefined ||
      span.start > inner.start ||
      (span.start === inner.start && span.end < inner.end)
    return isInside ? span : inner
  }, undefined)
}

/** Returns the time at which the end of a span was noticed. */
export function noticedEnd({ end, noticed = 0 }: Span): number {
  return end + noticed
}

/** Returns a function that finds the intervals that overlap a window. Pass windows in order. */
export function sweep<T extends { readonly start: number }>(
  intervals: readonly T[],
  endOf: (each: T) => number,
): (window: Window) => readonly T[] {
  const sorted = intervals.toSorted((a, b) => a.start - b.start)
  let active: T[] = []
  let next = 0
  return ({ start, end }) => {
    while (next < sorted.length && sorted[next]!.start < end) active.push(sorted[next++]!)
    active = active.filter((each) => endOf(each) > start)
    return active
  }
}

/**
 * Returns the milliseconds of each share in a step.
 *
 * @param idle - milliseconds of waiting inherent in the pipeline schedule
 */
export function sharesOf(pieces: readonly Piece[], idle: number): Record<TimeShare, number> {
  const shares = sharesFrom(() => 0)
  let waiting = 0
  for (const { part, start, end } of pieces) {
    if (part === 'waiting') waiting += end - start
    else shares[shareOfPart[part]] += end - start
  }
  shares.bubble = Math.min(waiting, idle)
  shares.imbalance = waiting - shares.bubble
  return shares
}
