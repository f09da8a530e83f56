import { formatBytes } from '@tsrun/core'
import { markdownTable, percentile, significant } from '../figures.mjs'
import { mean, middle, partNames, takeApart } from './parts.mjs'

/**
 * @typedef {readonly (import('./parts.mjs').RankStep & { toHost: number, toTensor: number })[]} Step -
 * what each rank has recorded of a step; `toHost` and `toTensor` are the bytes that it has copied from
 * tensors to arrays of the host and back
 */

/**
 * @typedef {object} Warm - one all-reduce of what a step averages, in the same job
 * @property {number} bytes
 * @property {number} ms
 */

/** The headings of the parts. */
const headings = {
  batch: 'batch',
  forward: 'forward',
  backward: 'backward',
  alloc: 'alloc',
  pack: 'copies in',
  call: 'calls',
  waiting: 'waiting',
  transfer: 'transfer',
  wakeUp: 'wake-up',
  reduce: 'scaling',
  unpack: 'copies out',
  update: 'update',
}

/**
 * The mean over the ranks and over the middle half of the steps.
 *
 * @param {{ workload: string, layout: string, ranks: number, backend: string }} what
 * @param {readonly Step[]} steps - at least one
 */
export function summarizeSteps(what, steps) {
  const samples = steps.map((ranks) => {
    const apart = takeApart(ranks)
    const parts = partNames.map((name) => [name, mean(apart.map(({ parts }) => parts[name]))])
    /** @type {Record<string, number>} */
    const sample = {
      step: mean(apart.map(({ step }) => step)),
      ...Object.fromEntries(parts),
      hidden: mean(apart.map(({ hidden }) => hidden)),
      toHost: mean(ranks.map(({ toHost }) => toHost)),
      toTensor: mean(ranks.map(({ toTensor }) => toTensor)),
    }
    return sample
  })
  const figures = middle(samples, 'step')
  const of = (/** @type {string} */ name) => figures[name] ?? NaN
  const named = Object.keys(headings).map((name) => [`${name}Ms`, significant(of(name), 3)])
  return {
    ...what,
    stepMs: significant(of('step')),
    .../** @type {Record<string, number>} */ (Object.fromEntries(named)),
    unexplained: significant(of('unexplained') / of('step'), 2),
    hiddenMs: significant(of('hidden'), 3),
    toHostBytes: Math.round(of('toHost')),
    toTensorBytes: Math.round(of('toTensor')),
  }
}

/** What a step of data parallel pays for averaging, beside waiting for the slower rank. */
const paid = /** @type {const} */ (['pack', 'call', 'transfer', 'wakeUp', 'reduce', 'unpack'])

/**
 * The communication of a step that is not hidden behind its computation, beside one all-reduce of the
 * same bytes.
 *
 * @param {ReturnType<typeof summarizeSteps>} row
 * @param {Warm} warm
 */
export function summarizeExposed(row, { bytes, ms }) {
  const exposed = paid.reduce((total, name) => total + (row[`${name}Ms`] ?? 0), 0)
  return {
    ...{ workload: row.workload, layout: row.layout, backend: row.backend, bytes },
    exposedMs: significant(exposed, 3),
    waitingMs: row['waitingMs'] ?? 0,
    warmMs: significant(ms, 3),
    ratio: significant(exposed / ms, 3),
  }
}

/** @param {readonly ReturnType<typeof summarizeExposed>[]} rows */
export function formatExposed(rows) {
  return markdownTable(
    ['workload', 'layout', 'averaged', 'exposed ms', 'waiting ms', 'one all-reduce ms', 'x'],
    rows.map(({ workload, layout, bytes, exposedMs, waitingMs, warmMs, ratio }) => [
      ...[workload, layout, formatBytes(bytes), exposedMs, waitingMs, warmMs, ratio],
    ]),
  )
}

/**
 * The first calls of an operation beside those that run at its usual speed.
 *
 * @param {{ ranks: number, engine: string }} what
 * @param {{ bytes: number, first: readonly number[], warm: readonly number[] }} times - microseconds
 */
export function summarizeCold(what, { bytes, first, warm }) {
  const [firstUs, warmUs] = [mean(first), mean(warm)]
  return {
    ...{ size: formatBytes(bytes), ...what },
    firstUs: significant(firstUs, 3),
    warmUs: significant(warmUs, 3),
    ratio: significant(firstUs / warmUs, 3),
    p50Us: significant(percentile(warm, 0.5), 3),
    p90Us: significant(percentile(warm, 0.9), 3),
    spread: significant(percentile(warm, 0.9) / percentile(warm, 0.5), 3),
  }
}

/** @param {readonly ReturnType<typeof summarizeSteps>[]} rows */
export function formatSteps(rows) {
  return markdownTable(
    [
      ...['workload', 'layout', 'step ms', ...Object.values(headings)],
      ...['unexplained', 'hidden', 'to host', 'to tensors'],
    ],
    rows.map((row) => [
      ...[row.workload, row.layout, row.stepMs],
      ...Object.keys(headings).map((name) => row[`${name}Ms`] ?? NaN),
      `${(100 * row.unexplained).toFixed(1)} %`,
      row.hiddenMs,
      ...[row.toHostBytes, row.toTensorBytes].map((bytes) => formatBytes(bytes)),
    ]),
  )
}

/**
 * An operation on one rank: milliseconds on the clock of the host. `called` is the time before the call,
 * `returned` after it, `posted` when the engine took it up, `completed` when it ended, `resumed` when the
 * caller continued.
 *
 * @typedef {Record<'called' | 'returned' | 'posted' | 'completed' | 'resumed', number>} Moments
 *
 * @typedef {object} Exchange - all-reduces of one size, in one job
 * @property {number} bytes
 * @property {readonly (readonly Moments[])[]} repeats - of all ranks
 * @property {number} startMs - of starting a prepared operation
 * @property {number} kernelMs - of adding as much as a rank adds
 */

/**
 * The mean over the ranks and over the middle half of the repetitions, in microseconds. The parts add up
 * to the whole.
 *
 * @param {{ ranks: number, engine: string }} what
 * @param {Exchange} exchange
 */
export function summarizeExchange(what, { bytes, repeats, startMs, kernelMs }) {
  const samples = repeats.map((moments) => {
    const arrived = Math.max(...moments.map(({ posted }) => posted))
    const parts = moments.map((moment) => partsOf(moment, { arrived, startMs, kernelMs }))
    const names = Object.keys(/** @type {Record<string, number>} */ (parts[0]))
    return /** @type {(typeof parts)[0]} */ (
      Object.fromEntries(
        names.map((name) => [name, mean(parts.map((each) => /** @type {any} */ (each)[name]))]),
      )
    )
  })
  const figures = middle(samples, 'wholeUs')
  const rounded = Object.entries(figures).map(([name, value]) => [name, significant(value, 3)])
  return {
    ...{ size: formatBytes(bytes), ...what },
    .../** @type {typeof figures} */ (Object.fromEntries(rounded)),
  }
}

/**
 * @param {Moments} moments
 * @param {{ arrived: number, startMs: number, kernelMs: number }} others - `arrived`: of the last rank
 */
function partsOf({ called, returned, posted, completed, resumed }, { arrived, startMs, kernelMs }) {
  const checks = Math.max(0, Math.min(returned - called - startMs, posted - called))
  // An engine on the caller's thread may be through when the call returns.
  const moved = completed - Math.min(arrived, completed)
  const kernel = Math.min(kernelMs, moved)
  const us = (/** @type {number} */ ms) => ms * 1e3
  return {
    wholeUs: us(resumed - called),
    argumentsUs: us(checks),
    handOverUs: us(posted - called - checks),
    waitingUs: us(Math.min(arrived, completed) - posted),
    transferUs: us(moved - kernel),
    kernelUs: us(kernel),
    returnUs: us(resumed - completed),
  }
}
