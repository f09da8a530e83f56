// The speeds of docs/hardware.md, from registers to Ethernet, on a logarithmic axis.
import { readFileSync } from 'node:fs'
import { legend, picture, rect, text } from './drawing.mjs'

const WIDTH = 830
const LEFT = 20
const SIZES = 335
const BARS = 350
const DECADE = 46
/** GB/s at the left end of the axis. */
const FIRST = 0.1
/** The marks of the axis, a power of ten apart. */
const MARKS = ['0.1', '1', '10', '100 GB/s', '1', '10', '100 TB/s', '']
const BAR = 16
const ROW = 24
const HEAD = 52
const TITLE = 50

/** @typedef {{ level: string, size: string, facts: string, speed: [low: number, high: number] | undefined }} Level */

/** @returns {string} an SVG image */
export function drawMemory() {
  const page = readFileSync(new URL('../../docs/hardware.md', import.meta.url), 'utf8')
  const devices = ['CPU', 'GPU'].map((device) => ({ device, levels: levelsOf(page, device) }))
  /** @type {string[]} */
  const body = []
  let top = HEAD
  for (const { device, levels } of devices) {
    body.push(drawDevice(device, levels, top))
    top += TITLE + levels.length * ROW + 16
  }
  const description = devices.map(({ device, levels }) => {
    const list = levels.map(({ level, size, facts }) =>
      [level, size, facts].filter((fact) => fact !== '').join(', '),
    )
    return `${device}: ${list.join('; ')}.`
  })
  const meanings = [
    { name: 'of-0', text: 'registers and caches' },
    { name: 'of-2', text: 'memory and disks' },
    { name: 'of-1', text: 'links and messages' },
  ]
  const facts = {
    title: 'The memory hierarchy: how many bytes per second each level moves',
    description: description.join(' '),
    width: WIDTH,
    height: top,
  }
  return picture(facts, [...legend(LEFT, meanings), ...body])
}

/**
 * The rows of the table whose first heading is `level, DEVICE`.
 *
 * @param {string} page
 * @param {string} device
 * @returns {Level[]}
 */
function levelsOf(page, device) {
  const [, table = ''] =
    new RegExp(`\\n\\| level, ${device} .*\\n\\|.*\\n((?:\\|.*\\n)+)`).exec(page) ?? []
  return table
    .trim()
    .split('\n')
    .map((line) => {
      const [level = '', size = '', ...rest] = line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim())
      const facts = rest.reverse().filter((fact) => fact !== '')
      return { level, size, facts: facts.join(', '), speed: speedOf(facts[0] ?? '') }
    })
}

/**
 * The least and the most GB/s that a text names.
 *
 * @param {string} fact
 * @returns {[low: number, high: number] | undefined}
 */
function speedOf(fact) {
  const [, numbers = '', unit] = /(.*?)([GT])B\/s/.exec(fact) ?? []
  if (unit === undefined) return undefined
  const scale = unit === 'T' ? 1000 : 1
  const found = numbers.includes('hundreds') ? ['100', '1000'] : (numbers.match(/[\d.]+/g) ?? [])
  const speeds = found.map((number) => Number(number) * scale)
  return [Math.min(...speeds), Math.max(...speeds)]
}

/**
 * @param {string} device
 * @param {readonly Level[]} levels
 * @param {number} top
 */
function drawDevice(device, levels, top) {
  const first = top + TITLE
  const bottom = first + levels.length * ROW
  const marks = MARKS.map((mark, i) => {
    const x = BARS + i * DECADE
    return (
      rect('empty', x, first - 6, 1, bottom - first + 6) + text(x, first - 12, mark, 'quiet middle')
    )
  })
  const rows = levels.map((level, i) => drawLevel(level, first + i * ROW))
  return [text(LEFT, top + 20, device, 'title'), ...marks, ...rows].join('\n')
}

/**
 * @param {Level} level
 * @param {number} y
 */
function drawLevel({ level, size, facts, speed }, y) {
  const kind = /^(registers|L\d)/.test(level) ? 0 : /^(memory|HBM|an SSD)/.test(level) ? 2 : 1
  const x = (/** @type {number} */ value) => Math.round(BARS + Math.log10(value / FIRST) * DECADE)
  const [low, high] = (speed ?? [FIRST, FIRST]).map(x)
  const bars =
    speed === undefined
      ? ''
      : `<g opacity="0.45">${rect(`of-${kind}`, BARS, y, high - BARS, BAR)}</g>` +
        rect(`of-${kind}`, BARS, y, low - BARS, BAR)
  return [
    text(LEFT, y + 13, level),
    text(SIZES, y + 13, size, 'quiet end'),
    bars,
    text(high + 8, y + 13, facts, 'quiet'),
  ].join('')
}
