// What the runs of a lesson printed, and how their figures compare with theory.
import { formatTable } from '@tsrun/core'
import { markdownTable } from '../bench/figures.mjs'
import { lessons, ROUNDING } from './lessons.mjs'

/**
 * @typedef {import('./lessons.mjs').Figures} Figures
 * @typedef {import('./lessons.mjs').Machine} Machine
 * @typedef {import('./lessons.mjs').Shown} Shown
 *
 * @typedef {object} Run - a lesson, which may have run several times
 * @property {string} title
 * @property {number} ranks
 * @property {number} seconds - of all its repeats
 * @property {readonly Figures[]} repeats - empty if the lesson failed
 *
 * @typedef {'met' | 'MISSED' | 'WRONG' | 'FAILED' | ''} Verdict - empty: the lesson has no bound
 *
 * @typedef {Shown & { verdict: Verdict }} Judged
 */

/** The lessons that train the same network from the same seed. */
const ONE_TRAINING = /^(scratch|0[12456]) /

/**
 * The figures of the last line `result {…}` that rank 0 printed, and the losses of all steps where a line
 * has them; undefined if there is no result.
 *
 * @param {string} output
 * @returns {Figures | undefined}
 */
export function readResult(output) {
  const text = output.replaceAll(/^\[rank 0\] /gm, '')
  const line = [...text.matchAll(/^result (\{.*\})$/gm)].at(-1)
  if (line === undefined) return undefined
  // The line is wrapped at the width of the terminal.
  const losses = /^loss of each step: ([\d.]+(?:\s+[\d.]+)*)$/m.exec(text)?.[1]?.split(/\s+/)
  // JSON has null in the place of NaN and Infinity.
  const result = JSON.parse(line[1] ?? '', (_, value) => value ?? NaN)
  return losses === undefined ? result : { losses: losses.map(Number), ...result }
}

/**
 * The median of each number; everything else is that of the first run.
 *
 * @template T
 * @param {readonly T[]} values - of equal structure, at least one
 * @returns {T}
 */
export function medianOf(values) {
  /** @type {any} */
  const first = values[0]
  if (typeof first === 'number') {
    return [...values].sort((a, b) => Number(a) - Number(b))[values.length >> 1] ?? first
  }
  if (typeof first !== 'object' || first === null) return first
  const parts = Object.keys(first).map((key) => [
    key,
    medianOf(values.map((/** @type {any} */ value) => value?.[key] ?? first[key])),
  ])
  return Array.isArray(first) ? parts.map(([, part]) => part) : Object.fromEntries(parts)
}

/**
 * Compares the medians of a lesson's runs with theory. What must be equal has to be equal in every run.
 *
 * @param {Run} run
 * @param {Machine} machine
 * @param {readonly Run[]} runs - those before it, too
 * @returns {Judged}
 */
export function judge({ title, ranks, repeats }, machine, runs) {
  const lesson = lessons.find((each) => each.title === title)
  if (lesson === undefined || repeats.length === 0) return { measured: '', verdict: 'FAILED' }
  const former = (/** @type {string} */ name) => {
    const found = runs.find((run) => run.title === name && run.repeats.length > 0)
    return found && medianOf(found.repeats)
  }
  const show = (/** @type {Figures} */ figures) =>
    lesson.show(figures, { ...machine, ranks }, former)
  const shown = show(medianOf(repeats))
  const wrong = repeats.map(show).find(({ isRight = true }) => !isRight)
  if (wrong !== undefined) return { ...wrong, verdict: 'WRONG' }
  const difference = Math.max(...repeats.map((figures) => lossDifference(title, figures, runs)))
  if (!(difference <= ROUNDING)) {
    return { ...shown, measured: `loss ${difference.toExponential(0)} off`, verdict: 'WRONG' }
  }
  if (shown.bound === undefined) return { ...shown, verdict: '' }
  return { ...shown, verdict: shown.isMet === false ? 'MISSED' : 'met' }
}

/**
 * The largest difference of the loss of any step from the first lesson of the same training, as a share
 * of it.
 *
 * @param {string} title
 * @param {Figures} figures
 * @param {readonly Run[]} runs
 * @returns {number}
 */
function lossDifference(title, { losses }, runs) {
  if (!ONE_TRAINING.test(title)) return 0
  const first = runs.find((run) => ONE_TRAINING.test(run.title) && run.repeats.length > 0)
  /** @type {readonly number[]} */
  const wanted = first?.repeats[0]?.['losses'] ?? losses
  if (losses?.length !== wanted?.length || losses === undefined) return Infinity
  return Math.max(...wanted.map((loss, step) => Math.abs(losses[step] / loss - 1)))
}

/**
 * @param {readonly Verdict[]} verdicts
 * @param {boolean} isChecked - whether a measurement must be within its bound
 * @returns {0 | 1}
 */
export function exitCodeOf(verdicts, isChecked) {
  const fails = (/** @type {Verdict} */ verdict) =>
    verdict === 'FAILED' || verdict === 'WRONG' || (isChecked && verdict === 'MISSED')
  return verdicts.some(fails) ? 1 : 0
}

/**
 * @param {readonly Run[]} runs
 * @param {Machine} machine
 * @returns {string[][]} the headings, and a row for each run
 */
function rowsOf(runs, machine) {
  const rows = runs.map((run) => {
    const { theory = '', measured, bound = '', verdict, loss } = judge(run, machine, runs)
    return [run.title, String(run.ranks), theory, measured, bound, verdict, loss?.toFixed(4) ?? '']
  })
  return [['lesson', 'ranks', 'theory', 'measured', 'bound', 'verdict', 'loss'], ...rows]
}

/**
 * The table of all runs, in lines of at most 80 characters.
 *
 * @param {readonly Run[]} runs
 * @param {Machine} machine
 * @returns {string[]}
 */
export function tableOf(runs, machine) {
  return formatTable(rowsOf(runs, machine), 'left', 80)
}

const [BEGIN, END] = ['<!-- recorded -->', '<!-- end of the record -->']

/**
 * Replaces the recorded table of a page.
 *
 * @param {string} page - has a line for the begin and one for the end of the record
 * @param {string} where - describes the machine, and ends in a colon
 * @param {readonly Run[]} runs
 * @param {Machine} machine
 * @returns {string}
 */
export function recordIn(page, where, runs, machine) {
  const [headings = [], ...rows] = rowsOf(runs, machine)
  const table = markdownTable(headings, rows)
  const [before, after] = [page.indexOf(BEGIN), page.indexOf(END)]
  return [`${page.slice(0, before)}${BEGIN}`, where, table, page.slice(after)].join('\n\n')
}
