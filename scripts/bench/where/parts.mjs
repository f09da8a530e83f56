import { Arrivals, divideWindow } from '@tsrun/observe'

/**
 * @typedef {import('@tsrun/distributed').Span} Span
 * @typedef {(typeof partNames)[number]} Part
 * @typedef {Record<Part, number>} Parts - milliseconds
 *
 * @typedef {object} RankStep - a step on one rank
 * @property {number} rank
 * @property {import('@tsrun/observe').Window} window - from its start to its end, on the clock of the
 * spans
 * @property {readonly Span[]} spans
 */

/** The parts of `divideWindow` that a step of these layouts has, in the order of the table. */
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

/**
 * The parts of a step on each rank, whose sum is the length of its window.
 *
 * @param {readonly RankStep[]} ranks - the same step of all ranks
 * @returns {{ step: number, hidden: number, parts: Parts }[]} in the order of `ranks`; `hidden` is the
 * time of collectives during which the main thread did something else
 */
export function takeApart(ranks) {
  const arrivals = new Arrivals()
  for (const { spans } of ranks) for (const span of spans) arrivals.add(span)
  return ranks.map(({ window, spans }) => {
    const parts = /** @type {Parts} */ (Object.fromEntries(partNames.map((name) => [name, 0])))
    let hidden = 0
    for (const { start, end, part, isBesideCollective } of divideWindow(window, spans, arrivals)) {
      const known = partNames.find((name) => name === part) ?? 'unexplained'
      parts[known] += end - start
      const isBusy = known !== 'waiting' && known !== 'transfer'
      if (isBusy && isBesideCollective) hidden += end - start
    }
    return { step: window.end - window.start, hidden, parts }
  })
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
