// Draws docs/images/timeline.svg, the picture of the README, from the schedules themselves:
// npm run build && node scripts/timeline-svg.mjs
import { mkdirSync, writeFileSync } from 'node:fs'
import { schedule } from '@tsrun/training/planning'

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

/** @typedef {import('@tsrun/training').TimedAction} Span */

const charts = /** @type {const} */ (['naive', 'gpipe', '1f1b']).map((name) => ({
  title: { naive: 'Naive', gpipe: 'GPipe', '1f1b': '1F1B' }[name],
  result: schedule(name, { stages: STAGES, microbatches: MICROBATCHES }).simulate({
    forward: FORWARD,
    backward: BACKWARD,
  }),
}))

// All schedules have the same scale. The picture ends with the shortest of them.
const shown = Math.min(...charts.map(({ result }) => result.makespan))
const chartHeight = TITLE + STAGES * (ROW + GAP) + 18
const width = LEFT + shown * UNIT + MARGIN
const height = HEAD + charts.length * chartHeight + 2

const style = `
  text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .card { fill: #ffffff; stroke: #d1d9e0 }
  .track { fill: #eef1f4 }
  .F { fill: #2f6fca } .B { fill: #f2a93b }
  .number { font-size: 12px; text-anchor: middle }
  .number.on-F { fill: #ffffff } .number.on-B { fill: #3b2500 }
  .title { font-size: 15px; font-weight: 600 }
  .quiet { fill: #59636e }
  .end { text-anchor: end }
  .fade-in { stop-color: #ffffff; stop-opacity: 0 } .fade-out { stop-color: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .card { fill: #0d1117; stroke: #30363d }
    .track { fill: #1d232b }
    .F { fill: #4c8ef0 } .B { fill: #e0983a }
    .number.on-F { fill: #06142b } .number.on-B { fill: #241600 }
    .quiet { fill: #9198a1 }
    .fade-in { stop-color: #0d1117 } .fade-out { stop-color: #0d1117 }
  }`

const percent = (/** @type {number} */ share) => `${Math.round(share * 100)} %`
const summary = charts
  .map(({ title, result }) => `${title}: ${percent(result.bubble)} idle`)
  .join(', ')

const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="title">
<title id="title">Pipeline schedules of ${STAGES} stages and ${MICROBATCHES} micro-batches. ${summary}.</title>
<style>${style}
</style>
<defs><linearGradient id="fade"><stop class="fade-in"/><stop offset="0.85" class="fade-out"/></linearGradient></defs>
<rect class="card" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>
${legend()}
${charts.map((chart, i) => drawChart(chart, HEAD + i * chartHeight)).join('\n')}
</svg>
`

const file = new URL('../docs/images/timeline.svg', import.meta.url)
mkdirSync(new URL('.', file), { recursive: true })
writeFileSync(file, svg)

function legend() {
  const items = [
    { name: 'F', text: 'forward', units: FORWARD },
    { name: 'B', text: 'backward', units: BACKWARD },
    { name: 'track', text: 'idle (the bubble)', units: FORWARD },
  ]
  let x = LEFT
  const drawn = items.map(({ name, text, units }) => {
    const box = `<rect class="${name}" x="${x}" y="20" width="${units * UNIT - 1}" height="18" rx="2"/>`
    const label = `<text x="${x + units * UNIT + 7}" y="34">${text}</text>`
    x += units * UNIT + 24 + text.length * 8
    return box + label
  })
  const note = `${STAGES} stages, ${MICROBATCHES} micro-batches (numbered); time runs to the right`
  return `${drawn.join('\n')}\n<text class="quiet end" x="${width - MARGIN}" y="34">${note}</text>`
}

/**
 * @param {(typeof charts)[number]} chart
 * @param {number} top
 */
function drawChart({ title, result }, top) {
  const inFlight = Math.max(...result.ranks.map((rank) => rank.peakInFlight))
  const facts = [
    `bubble ${percent(result.bubble)}`,
    `${result.makespan} time units`,
    `activations of ${inFlight === 1 ? '1 micro-batch' : `up to ${inFlight} micro-batches`} held`,
  ]
  const heading = `<text x="${LEFT}" y="${top + 20}"><tspan class="title">${title}</tspan><tspan class="quiet" dx="12">${facts.join('  ·  ')}</tspan></text>`
  const rows = result.ranks.map((_, rank) => {
    const y = rowTop(top, rank)
    return `<text class="quiet end" x="${LEFT - 12}" y="${y + 17}">rank ${rank}</text><rect class="track" x="${LEFT}" y="${y}" width="${shown * UNIT}" height="${ROW}" rx="2"/>`
  })
  const visible = result.spans
    .filter(({ start }) => start < shown)
    .sort((a, b) => a.rank - b.rank || a.start - b.start)
  const cells = visible.map((span) => drawSpan(span, rowTop(top, span.rank)))
  const rest = result.makespan > shown ? [runsOut(result.makespan, top)] : []
  return [heading, ...rows, ...cells, ...rest].join('\n')
}

/**
 * @param {number} top
 * @param {number} rank
 */
function rowTop(top, rank) {
  return top + TITLE + rank * (ROW + GAP)
}

/**
 * @param {Span} span
 * @param {number} y
 */
function drawSpan({ kind, microbatch, start, end }, y) {
  const x = LEFT + start * UNIT
  const length = (Math.min(end, shown) - start) * UNIT - 1
  const box = `<rect class="${kind}" x="${x}" y="${y}" width="${length}" height="${ROW}" rx="2"/>`
  return `${box}<text class="number on-${kind}" x="${x + length / 2}" y="${y + 16.5}">${microbatch}</text>`
}

/**
 * @param {number} makespan
 * @param {number} top
 */
function runsOut(makespan, top) {
  const fade = 3 * UNIT
  const x = LEFT + shown * UNIT - fade
  const bottom = rowTop(top, STAGES) - GAP
  const veil = `<rect fill="url(#fade)" x="${x}" y="${top + TITLE}" width="${fade + 1}" height="${bottom - top - TITLE}"/>`
  return `${veil}<text class="end quiet" x="${width - MARGIN}" y="${top + 20}">the first ${shown} of ${makespan} units →</text>`
}
