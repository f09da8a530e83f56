// Pipeline schedules on the same time scale, from the schedules themselves.
import { schedule } from '@tsrun/training/planning'
import { cell, heading, legend, picture, rect, text } from './drawing.mjs'

const STAGES = 4
const MICROBATCHES = 8
const FORWARD = 1
const BACKWARD = 2

const UNIT = 24
const ROW = 24
const GAP = 3
const LEFT = 76
const MARGIN = 20
const HEAD = 64
const TITLE = 34

const percent = (/** @type {number} */ share) => `${Math.round(share * 100)} %`

/** Draws three schedules. The picture ends with the shortest of them. */
export function drawTimeline() {
  const charts = /** @type {const} */ (['naive', 'gpipe', '1f1b']).map((name) => ({
    title: { naive: 'Naive', gpipe: 'GPipe', '1f1b': '1F1B' }[name],
    result: schedule(name, { stages: STAGES, microbatches: MICROBATCHES }).simulate({
      forward: FORWARD,
      backward: BACKWARD,
    }),
  }))
  const shown = Math.min(...charts.map(({ result }) => result.makespan))
  const chartHeight = TITLE + STAGES * (ROW + GAP) + 18
  const width = LEFT + shown * UNIT + MARGIN
  const facts = {
    title: `Pipeline schedules of ${STAGES} stages and ${MICROBATCHES} micro-batches`,
    description: `${charts.map(({ title, result }) => `${title}: ${percent(result.bubble)} idle`).join(', ')}.`,
    width,
    height: HEAD + charts.length * chartHeight + 2,
  }
  const note = `${STAGES} stages, ${MICROBATCHES} micro-batches; time runs to the right`
  return picture(facts, [
    ...legend(LEFT, [
      { name: 'of-0', text: 'forward', width: FORWARD * UNIT - 1 },
      { name: 'of-1', text: 'backward', width: BACKWARD * UNIT - 1 },
      { name: 'empty', text: 'idle (the bubble)', width: FORWARD * UNIT - 1 },
    ]),
    text(width - MARGIN, 34, note, 'quiet end'),
    ...charts.map((chart, i) => drawChart(chart, shown, HEAD + i * chartHeight)),
  ])
}

/**
 * @param {{ title: string, result: import('@tsrun/training/planning').Simulation }} chart
 * @param {number} shown units of time
 * @param {number} top
 */
function drawChart({ title, result }, shown, top) {
  const inFlight = Math.max(...result.ranks.map((rank) => rank.peakInFlight))
  const facts = [
    `bubble ${percent(result.bubble)}`,
    `${result.makespan} time units`,
    `activations of ${inFlight === 1 ? '1 micro-batch' : `up to ${inFlight} micro-batches`} held`,
  ]
  const rows = result.ranks.map((_, rank) => {
    const y = rowTop(top, rank)
    const label = text(LEFT - 12, y + 17, `rank ${rank}`, 'quiet end')
    return label + rect('empty', LEFT, y, shown * UNIT, ROW)
  })
  const cells = result.spans
    .filter(({ start }) => start < shown)
    .sort((a, b) => a.rank - b.rank || a.start - b.start)
    .map(({ kind, microbatch, rank, start, end }) => {
      const length = (Math.min(end, shown) - start) * UNIT - 1
      const x = LEFT + start * UNIT
      return cell(kind === 'F' ? 0 : 1, x, rowTop(top, rank), length, ROW, microbatch)
    })
  return [
    heading(LEFT, top + 20, title, facts.join('  ·  ')),
    ...rows,
    ...cells,
    ...(result.makespan > shown ? [runsOut(result.makespan, shown, top)] : []),
  ].join('\n')
}

/**
 * @param {number} top
 * @param {number} rank
 */
function rowTop(top, rank) {
  return top + TITLE + rank * (ROW + GAP)
}

/**
 * @param {number} makespan
 * @param {number} shown
 * @param {number} top
 */
function runsOut(makespan, shown, top) {
  const fade = 3 * UNIT
  const right = LEFT + shown * UNIT
  const height = rowTop(top, STAGES) - GAP - top - TITLE
  const veil = `<rect fill="url(#fade)" x="${right - fade}" y="${top + TITLE}" width="${fade + 1}" height="${height}"/>`
  return veil + text(right, top + 20, `the first ${shown} of ${makespan} units →`, 'end quiet')
}
