// Draws docs/images/collectives.svg from collectives that run on four ranks of this process:
// npm run build && node scripts/collectives-svg.mjs
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { runWorld } from '@tsrun/distributed'

const RANKS = 4
const CELL = 34
const GAP = 3
const BUFFER = RANKS * (CELL + GAP)
const ARROW = 36
const LEFT = 58
const TITLE = 50
const PANEL = { width: LEFT + 2 * BUFFER + ARROW + 24, height: TITLE + RANKS * (CELL + GAP) + 24 }
const COLUMNS = 2
const HEAD = 52

/** @typedef {import('@tsrun/distributed').ProcessGroup} ProcessGroup */
/** @typedef {readonly (number | undefined)[]} Cells one value for each place of a buffer */
/** @typedef {{ before: Cells, after: Cells }} Effect of a collective on a rank */

/** The first value that a rank has in a place of its buffer. */
const own = (/** @type {number} */ rank, /** @type {number} */ place) => 10 * (rank + 1) + place
const originOf = (/** @type {number} */ value) => Math.floor(value / 10) - 1

/** @param {number} rank */
const filled = (rank) => Int32Array.from({ length: RANKS }, (_, place) => own(rank, place))
/** @param {number} rank */
const single = (rank) => Int32Array.of(own(rank, rank))
/** @param {number} rank @param {Int32Array} values */
const atOwnPlace = (rank, values) =>
  Array.from({ length: RANKS }, (_, place) => (place === rank ? values[0] : undefined))

/** @type {{ name: string, effect: string, run: (group: ProcessGroup) => Promise<Effect> }[]} */
const collectives = [
  {
    name: 'broadcast',
    effect: 'all ranks get the buffer of the root',
    async run(group) {
      const buffer = filled(group.rank)
      const before = group.rank === 0 ? [...buffer] : []
      await group.broadcast(buffer, 0)
      return { before, after: [...buffer] }
    },
  },
  {
    name: 'reduce',
    effect: 'the root gets the sum',
    async run(group) {
      const buffer = filled(group.rank)
      const before = [...buffer]
      await group.reduce(buffer, 0)
      return { before, after: group.rank === 0 ? [...buffer] : [] }
    },
  },
  {
    name: 'scatter',
    effect: 'each rank gets a part of the root’s buffer',
    async run(group) {
      const whole = group.rank === 0 ? filled(0) : null
      const part = new Int32Array(1)
      await group.scatter(part, whole, 0)
      return { before: [...(whole ?? [])], after: atOwnPlace(group.rank, part) }
    },
  },
  {
    name: 'gather',
    effect: 'the root gets all parts',
    async run(group) {
      const part = single(group.rank)
      const whole = group.rank === 0 ? new Int32Array(RANKS) : null
      await group.gather(whole, part, 0)
      return { before: atOwnPlace(group.rank, part), after: [...(whole ?? [])] }
    },
  },
  {
    name: 'reduce-scatter',
    effect: 'each rank gets a part of the sum',
    async run(group) {
      const buffer = filled(group.rank)
      const part = new Int32Array(1)
      await group.reduceScatter(part, buffer)
      return { before: [...buffer], after: atOwnPlace(group.rank, part) }
    },
  },
  {
    name: 'all-gather',
    effect: 'all ranks get all parts',
    async run(group) {
      const part = single(group.rank)
      const whole = new Int32Array(RANKS)
      await group.allGather(whole, part)
      return { before: atOwnPlace(group.rank, part), after: [...whole] }
    },
  },
  {
    name: 'all-reduce',
    effect: 'all ranks get the sum: reduce-scatter, then all-gather',
    async run(group) {
      const buffer = filled(group.rank)
      const before = [...buffer]
      await group.allReduce(buffer)
      return { before, after: [...buffer] }
    },
  },
  {
    name: 'all-to-all',
    effect: 'part j of rank i becomes part i of rank j',
    async run(group) {
      const sent = filled(group.rank)
      const received = new Int32Array(RANKS)
      await group.allToAll(received, sent)
      return { before: [...sent], after: [...received] }
    },
  },
]

const style = `
  text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .card { fill: #ffffff; stroke: #d1d9e0 }
  .empty { fill: #eef1f4 }
  .of-0 { fill: #2f6fca } .of-1 { fill: #f2a93b } .of-2 { fill: #3a9d6e } .of-3 { fill: #b95fc0 }
  .sum { fill: #1f2328 }
  .value { font-size: 12px; text-anchor: middle }
  .value.on-0, .value.on-2, .value.on-3, .value.on-sum { fill: #ffffff } .value.on-1 { fill: #3b2500 }
  .title { font-size: 15px; font-weight: 600 }
  .quiet { fill: #59636e }
  .end { text-anchor: end }
  .arrow { stroke: #59636e; stroke-width: 1.5; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .card { fill: #0d1117; stroke: #30363d }
    .empty { fill: #1d232b }
    .of-0 { fill: #4c8ef0 } .of-1 { fill: #e0983a } .of-2 { fill: #4fbf8b } .of-3 { fill: #cf86d6 }
    .sum { fill: #e6edf3 }
    .value.on-0, .value.on-1, .value.on-2, .value.on-3, .value.on-sum { fill: #06142b }
    .quiet { fill: #9198a1 }
    .arrow { stroke: #9198a1 }
  }`

/** Runs the collectives, and returns their picture. */
export async function drawCollectives() {
  const effects = await Promise.all(collectives.map(({ run }) => runWorld({ size: RANKS }, run)))
  const width = COLUMNS * PANEL.width + 2
  const height = HEAD + Math.ceil(collectives.length / COLUMNS) * PANEL.height + 2
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="title">
<title id="title">The buffers of ${RANKS} ranks before and after each collective.</title>
<style>${style}
</style>
<rect class="card" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>
${legend()}
${effects.map(drawPanel).join('\n')}
</svg>
`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(new URL('../docs/images/collectives.svg', import.meta.url), await drawCollectives())
}

function legend() {
  const items = [...Array.from({ length: RANKS }, (_, rank) => `of rank ${rank}`), 'sum of all']
  return items
    .map((text, i) => {
      const x = LEFT + i * 110
      const name = i < RANKS ? `of-${i}` : 'sum'
      return `<rect class="${name}" x="${x}" y="20" width="18" height="18" rx="2"/><text x="${x + 25}" y="34">${text}</text>`
    })
    .join('\n')
}

/**
 * @param {readonly Effect[]} ranks
 * @param {number} index
 */
function drawPanel(ranks, index) {
  const { name, effect } = collectives[index]
  const x = (index % COLUMNS) * PANEL.width
  const y = HEAD + Math.floor(index / COLUMNS) * PANEL.height
  const heading = `<text x="${x + LEFT}" y="${y + 20}" class="title">${name}</text><text x="${x + LEFT}" y="${y + 38}" class="quiet">${effect}</text>`
  const rows = ranks.map(({ before, after }, rank) => {
    const top = y + TITLE + rank * (CELL + GAP)
    const label = `<text class="quiet end" x="${x + LEFT - 10}" y="${top + 22}">rank ${rank}</text>`
    return [
      label,
      drawBuffer(before, x + LEFT, top),
      drawBuffer(after, x + LEFT + BUFFER + ARROW, top),
    ].join('')
  })
  const middle = y + TITLE + (RANKS * (CELL + GAP) - GAP) / 2
  const from = x + LEFT + BUFFER + 4
  const to = from + ARROW - 12
  const arrow = `<path class="arrow" d="M${from} ${middle}H${to}m-6 -5l6 5l-6 5"/>`
  return [heading, ...rows, arrow].join('\n')
}

/**
 * @param {Cells} cells
 * @param {number} left
 * @param {number} top
 */
function drawBuffer(cells, left, top) {
  return Array.from({ length: RANKS }, (_, place) => {
    const x = left + place * (CELL + GAP)
    const value = cells[place]
    const box = (/** @type {string} */ name) =>
      `<rect class="${name}" x="${x}" y="${top}" width="${CELL}" height="${CELL}" rx="3"/>`
    if (value === undefined) return box('empty')
    const origin = originOf(value)
    const kind = origin < RANKS ? String(origin) : 'sum'
    const text = `<text class="value on-${kind}" x="${x + CELL / 2}" y="${top + 21.5}">${value}</text>`
    return box(kind === 'sum' ? kind : `of-${kind}`) + text
  }).join('')
}
