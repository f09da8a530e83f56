// The buffers of four ranks before and after each collective, which this process runs.
import { runWorld } from '@tsrun/distributed'
import { arrow, cell, legend, picture, rect, text } from './drawing.mjs'

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

/** Runs the collectives, and returns their picture. */
export async function drawCollectives() {
  const effects = await Promise.all(collectives.map(({ run }) => runWorld({ size: RANKS }, run)))
  const facts = {
    title: `The buffers of ${RANKS} ranks before and after each collective`,
    description: `${collectives.map(({ name, effect }) => `${name}: ${effect}`).join('; ')}.`,
    width: COLUMNS * PANEL.width + 2,
    height: HEAD + Math.ceil(collectives.length / COLUMNS) * PANEL.height + 2,
  }
  const origins = Array.from({ length: RANKS }, (_, rank) => ({
    name: `of-${rank}`,
    text: `of rank ${rank}`,
  }))
  const meanings = legend(LEFT, [...origins, { name: 'sum', text: 'sum of all' }])
  return picture(facts, [...meanings, ...effects.map(drawPanel)])
}

/**
 * @param {readonly Effect[]} ranks
 * @param {number} index
 */
function drawPanel(ranks, index) {
  const { name, effect } = collectives[index]
  const x = (index % COLUMNS) * PANEL.width + LEFT
  const y = HEAD + Math.floor(index / COLUMNS) * PANEL.height
  const rows = ranks.map(({ before, after }, rank) => {
    const top = y + TITLE + rank * (CELL + GAP)
    return [
      text(x - 10, top + 22, `rank ${rank}`, 'quiet end'),
      drawBuffer(before, x, top),
      drawBuffer(after, x + BUFFER + ARROW, top),
    ].join('')
  })
  const middle = y + TITLE + (RANKS * (CELL + GAP) - GAP) / 2
  const from = x + BUFFER + 4
  return [
    text(x, y + 20, name, 'title'),
    text(x, y + 38, effect, 'quiet'),
    ...rows,
    arrow([from, middle], [from + ARROW - 12, middle]),
  ].join('\n')
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
    if (value === undefined) return rect('empty', x, top, CELL, CELL)
    const origin = originOf(value)
    return cell(origin < RANKS ? origin : 'sum', x, top, CELL, CELL, value)
  }).join('')
}
