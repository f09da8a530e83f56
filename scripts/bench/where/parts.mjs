/**
 * Takes a step apart. Each instant of it belongs to one part: to what the main thread does, and where
 * the main thread does nothing, to the operation that it waits for.
 *
 * @typedef {import('@tsrun/telemetry').Span} Span
 * @typedef {{ readonly start: number, readonly end: number }} Interval
 * @typedef {(typeof partNames)[number]} Part
 * @typedef {Record<Part, number>} Parts - milliseconds
 *
 * @typedef {object} RankStep - a step on one rank
 * @property {number} rank
 * @property {Interval} window - from its start to its end, on the clock of the spans
 * @property {readonly Span[]} spans
 */

/**
 * `reduce` is arithmetic of the main thread on buffers, `transfer` all that the engine does once all
 * ranks are there: it moves values and sums them. `wakeUp` is the time from the end of an operation until
 * the main thread goes on.
 */
export const partNames = /** @type {const} */ ([
  'batch',
  'forward',
  'backward',
  'alloc',
  'pack',
  'call',
  'waiting',
  'transfer',
  'wakeUp',
  'reduce',
  'unpack',
  'update',
  'unexplained',
])

/** @type {Readonly<Partial<Record<Span['kind'], Part>>>} */
const computing = {
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
}

/**
 * The parts of a step on each rank, whose sum is the length of its window.
 *
 * @param {readonly RankStep[]} ranks - the same step of all ranks
 * @returns {{ step: number, hidden: number, parts: Parts }[]} in the order of `ranks`; `hidden` is the
 * time of collectives during which the main thread did something else
 */
export function takeApart(ranks) {
  const arrivals = lastArrivals(ranks.flatMap(({ spans }) => spans))
  return ranks.map(({ window, spans }) => {
    const parts = /** @type {Parts} */ (Object.fromEntries(partNames.map((name) => [name, 0])))
    const rank = divideSpans(spans, arrivals)
    let hidden = 0
    for (const { start, end } of pieces(window, rank)) {
      const part = partAt((start + end) / 2, rank)
      parts[part] += end - start
      const isBusy = part !== 'waiting' && part !== 'transfer'
      if (isBusy && rank.collectives.some((each) => contains(each, start))) hidden += end - start
    }
    return { step: window.end - window.start, hidden, parts }
  })
}

/** @typedef {Interval & { ready: number, noticed: number }} Operation - `ready`: all its ranks are there */

/**
 * @typedef {object} Divided
 * @property {readonly Span[]} main - of the main thread
 * @property {readonly Operation[]} collectives
 * @property {readonly Operation[]} receives
 * @property {readonly Operation[]} sends
 */

/**
 * @param {readonly Span[]} spans
 * @param {ReadonlyMap<string, number>} arrivals
 * @returns {Divided}
 */
function divideSpans(spans, arrivals) {
  /** @type {(span: Span, ready: number) => Operation} */
  const operation = ({ start, end, noticed = 0 }, ready) => ({
    start,
    end,
    ready: Math.min(ready, end),
    noticed: end + noticed,
  })
  /** @type {(kind: 'send' | 'recv') => Operation[]} */
  const messages = (kind) =>
    spans
      .filter((span) => span.kind === kind)
      .map((span) => operation(span, span.start + (span.waited ?? 0)))
  return {
    main: spans.filter(({ kind }) => kind === 'wait' || computing[kind] !== undefined),
    collectives: spans
      .filter(({ kind }) => kind === 'collective')
      .map((span) => operation(span, arrivals.get(keyOf(span)) ?? span.start)),
    receives: messages('recv'),
    sends: messages('send'),
  }
}

/**
 * When the last rank was there, for each collective.
 *
 * @param {readonly Span[]} spans - of all ranks
 * @returns {Map<string, number>}
 */
function lastArrivals(spans) {
  const arrivals = new Map()
  for (const span of spans) {
    if (span.kind !== 'collective') continue
    const key = keyOf(span)
    arrivals.set(key, Math.max(arrivals.get(key) ?? -Infinity, span.start))
  }
  return arrivals
}

/** @param {Span} span */
function keyOf({ group, sequence }) {
  return `${group} ${sequence}`
}

/**
 * The window, cut wherever something begins or ends.
 *
 * @param {Interval} window
 * @param {Divided} rank
 * @returns {Interval[]}
 */
function pieces({ start, end }, { main, collectives, receives, sends }) {
  const operations = [...collectives, ...receives, ...sends]
  const inside = [
    ...main.flatMap((span) => [span.start, span.end, span.start + (span.waited ?? 0)]),
    ...operations.flatMap((each) => [each.start, each.ready, each.end, each.noticed]),
  ].filter((at) => at > start && at < end)
  const cuts = [start, ...new Set(inside.toSorted((a, b) => a - b)), end]
  return cuts.slice(1).map((to, i) => ({ start: /** @type {number} */ (cuts[i]), end: to }))
}

/**
 * @param {number} at
 * @param {Divided} rank
 * @returns {Part}
 */
function partAt(at, { main, collectives, receives, sends }) {
  const inner = innermost(main.filter((span) => contains(span, at)))
  const part = inner && computing[inner.kind]
  if (part !== undefined) return part
  const pending = collectives.filter((each) => contains(each, at))
  if (pending.length > 0) return pending.some(({ ready }) => ready <= at) ? 'transfer' : 'waiting'
  if (inner?.waited !== undefined) {
    if (at < inner.start + inner.waited) return 'waiting'
    if (receives.some((each) => contains(each, at))) return 'transfer'
  } else if (inner !== undefined) {
    const leaving = sends.filter((each) => contains(each, at))
    if (leaving.length > 0) return leaving.some(({ ready }) => ready <= at) ? 'transfer' : 'waiting'
  }
  const isEnding = collectives.some(({ end, noticed }) => end <= at && at < noticed)
  return inner !== undefined || isEnding ? 'wakeUp' : 'unexplained'
}

/**
 * Of spans of one thread, which are nested.
 *
 * @param {readonly Span[]} spans
 * @returns {Span | undefined}
 */
function innermost(spans) {
  return spans.reduce(
    (/** @type {Span | undefined} */ inner, span) =>
      inner === undefined ||
      span.start > inner.start ||
      (span.start === inner.start && span.end < inner.end)
        ? span
        : inner,
    undefined,
  )
}

/**
 * @param {Interval} interval
 * @param {number} at
 */
function contains({ start, end }, at) {
  return start <= at && at < end
}

/**
 * The mean of each figure over the samples in the middle half by `total`. The parts of the mean add up to
 * its total, which those of medians do not.
 *
 * @template {Record<string, number>} T
 * @param {readonly T[]} samples - at least one
 * @param {keyof T} total
 * @returns {T}
 */
export function middle(samples, total) {
  const sorted = samples.toSorted((a, b) => Number(a[total]) - Number(b[total]))
  const cut = Math.floor(sorted.length / 4)
  const kept = sorted.slice(cut, sorted.length - cut)
  const names = Object.keys(/** @type {T} */ (kept[0]))
  return /** @type {T} */ (
    Object.fromEntries(names.map((name) => [name, mean(kept.map((each) => Number(each[name])))]))
  )
}

/** @param {readonly number[]} values - at least one */
export function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}
