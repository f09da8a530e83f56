// The messages of a collective, step by step, on four ranks that run the code of its algorithm.
import { arrow, heading, legend, picture, rect, stripes, text } from './drawing.mjs'
import { includes, messagesOf, RANKS } from './messages.ts'

/** @typedef {import('./messages.ts').Call} Call */
/** @typedef {import('./messages.ts').Step} Step */

const CELL = 22
const GAP = 2
const ROW = CELL + 8
const LEFT = 62
const COLUMN = RANKS * (CELL + GAP) - GAP
const BETWEEN = 64
/** The most steps in a line of columns. */
const MOST_STEPS = 3
const WIDTH = LEFT + COLUMN + MOST_STEPS * (BETWEEN + COLUMN) + 20
const HEAD = 52
const TITLE = 28
const LINE = { top: 24, height: 24 + RANKS * ROW + 12 }

const ranks = Array.from({ length: RANKS }, (_, rank) => rank)
const sums = new Set(['allReduce', 'reduce', 'reduceScatter'])

/**
 * @param {string} algorithm
 * @param {readonly Omit<Call, 'algorithm'>[]} calls
 * @param {string} [note]
 * @returns {string} an SVG image
 */
export function drawSteps(algorithm, calls, note) {
  const drawn = calls.map((call) => {
    const name = call.name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
    const messages = messagesOf(/** @type {Call} */ ({ ...call, algorithm }))
    return { ...messages, call, name }
  })
  /** @type {string[]} */
  const body = []
  let top = HEAD
  for (const { before, steps, call, name } of drawn) {
    const columns = [{ messages: [], held: before }, ...steps]
    const lines = Math.ceil(steps.length / MOST_STEPS)
    const each = Math.ceil(steps.length / lines)
    const facts = [factsOf(steps, call), ...(note === undefined ? [] : [note])]
    body.push(heading(LEFT, top + 18, name, facts.join('; ')))
    top += TITLE
    for (let first = 0; first < steps.length; first += each) {
      body.push(drawLine(columns.slice(first, first + each + 1), first, call, top))
      top += LINE.height
    }
  }
  const hasSums = calls.some(({ name }) => sums.has(name))
  const meanings = [
    ...ranks.map((rank) => ({ name: `of-${rank}`, text: `rank ${rank}` })),
    ...(hasSums ? [{ name: 'sum', text: 'sum of all' }] : []),
    { name: 'outline', text: 'arrived in this step' },
  ]
  const facts = {
    title: `The messages of ${drawn.map(({ name }) => name).join(', ')} by ${algorithm} on ${RANKS} ranks`,
    description: `Ranks, with the parts of the buffer that are sent in parentheses. ${drawn.map(({ name, steps }) => `${name}: ${describe(steps)}`).join(' ')}`,
    width: WIDTH,
    height: top + 6,
  }
  return picture(facts, [...legend(20, meanings), ...body])
}

/**
 * Buffers after each of some steps, and arrows between them.
 *
 * @param {readonly Step[]} columns
 * @param {number} first the number of steps before the first column
 * @param {Omit<Call, 'algorithm'>} call
 * @param {number} top
 */
function drawLine(columns, first, call, top) {
  const left = (/** @type {number} */ column) => LEFT + column * (COLUMN + BETWEEN)
  const y = (/** @type {number} */ rank) => top + LINE.top + rank * ROW
  const titles = columns.map((_, i) => {
    const after = first + i === 0 ? 'before' : i === 0 ? `after step ${first}` : `step ${first + i}`
    return text(left(i) + COLUMN / 2, top + 14, after, 'quiet middle')
  })
  const labels = ranks.map((rank) => text(LEFT - 10, y(rank) + 16, `rank ${rank}`, 'quiet end'))
  const buffers = columns.flatMap(({ held, messages }, i) =>
    ranks.map((rank) => {
      const arrived = messages.filter(({ to }) => to === rank && i > 0)
      const values = arrived.reduce((all, message) => all | message.values, 0)
      return drawBuffer(held[rank], values, call, left(i), y(rank))
    }),
  )
  const arrows = columns.flatMap(({ messages }, i) =>
    (i === 0 ? [] : messages).map(({ from, to }) =>
      arrow([left(i) - BETWEEN + 4, y(from) + CELL / 2], [left(i) - 5, y(to) + CELL / 2]),
    ),
  )
  return [...titles, ...labels, ...buffers, ...arrows].join('\n')
}

/**
 * A cell for each place. Where a place gets values of several ranks, each has a stripe.
 *
 * @param {number} held
 * @param {number} arrived
 * @param {Omit<Call, 'algorithm'>} call
 * @param {number} left
 * @param {number} y
 */
function drawBuffer(held, arrived, { name }, left, y) {
  const isShared = sums.has(name) || name === 'allToAll'
  return ranks
    .map((place) => {
      const x = left + place * (CELL + GAP)
      const origins = ranks.filter((rank) => includes(held, place, rank))
      const isNew = ranks.some((rank) => includes(arrived, place, rank))
      const outline = isNew ? rect('outline', x, y, CELL, CELL) : ''
      if (sums.has(name) && origins.length === RANKS) return rect('sum', x, y, CELL, CELL) + outline
      if (!isShared) {
        const fill = origins.length === 0 ? 'empty' : `of-${origins[0]}`
        return rect(fill, x, y, CELL, CELL) + outline
      }
      return stripes(origins, x, y, CELL, CELL) + outline
    })
    .join('')
}

/**
 * How many steps, and what the ranks send, as a multiple of the size S of the whole buffer.
 *
 * @param {readonly Step[]} steps
 * @param {Omit<Call, 'algorithm'>} call
 */
function factsOf(steps, { bytes = 256 }) {
  const sent = ranks.map((rank) =>
    steps
      .flatMap(({ messages }) => messages.filter(({ from }) => from === rank))
      .reduce((sum, message) => sum + message.bytes, 0),
  )
  const most = Math.max(...sent)
  const counted = `${steps.length} ${steps.length === 1 ? 'step' : 'steps'}`
  if (most === 0) return `${counted} of empty messages`
  const who = sent.every((one) => one === most) ? 'each rank sends' : 'a rank sends up to'
  return `${counted}, ${who} ${multiple(most / bytes)}`
}

/** @param {number} share a multiple of 1/4 */
function multiple(share) {
  const denominator = [1, 2, 4].find((one) => Number.isInteger(share * one)) ?? 4
  const numerator = share * denominator
  if (denominator > 1) return `${numerator}/${denominator} S`
  return numerator === 1 ? 'S' : `${numerator} S`
}

/** @param {readonly Step[]} steps */
function describe(steps) {
  const sentences = steps.map(({ messages }, i) => {
    const list = messages.map(({ from, to, values }) => {
      const places = ranks.filter((place) => ranks.some((rank) => includes(values, place, rank)))
      return `${from} to ${to} (${places.join(', ')})`
    })
    return `Step ${i + 1}: ${list.join(', ')}.`
  })
  return sentences.join(' ')
}
