import { formatBytes } from '@tsrun/core'

const WIDTH = 940
const PANEL = { width: 380, height: 250 }
const LEFT = [70, 540]
const PER_ROW = 4
const TOP = 112
const HEIGHT = TOP + PANEL.height + 52

/** Colours on light and dark backgrounds. The lines of peers are dashed as well. */
const colours = [
  ['#0b62c4', '#5aa2ff'],
  ['#0a7f86', '#40c9cf'],
  ['#7a3fc0', '#b68cff'],
  ['#b3266f', '#ff7ab8'],
  ['#c2410c', '#ff9a5c'],
  ['#4b7f0c', '#9ccb4a'],
  ['#8a6d00', '#d8b84a'],
]

const style = `
  text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .card { fill: #ffffff; stroke: #d1d9e0 } .grid { stroke: #e3e8ed }
  .quiet { fill: #59636e } .end { text-anchor: end } .middle { text-anchor: middle }
  path { fill: none; stroke-width: 2 } .peer { stroke-dasharray: 5 4 }
${colours.map(([light], i) => `  .line-${i} { stroke: ${light} } .dot-${i} { fill: ${light} }`).join('\n')}
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .card { fill: #0d1117; stroke: #30363d } .grid { stroke: #262c34 } .quiet { fill: #9198a1 }
${colours.map(([, dark], i) => `    .line-${i} { stroke: ${dark} } .dot-${i} { fill: ${dark} }`).join('\n')}
  }`

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {boolean} isPeer
 * @property {{ bytes: number, us: number, busbw: number }[]} points - sizes ascending
 */

/**
 * Time and bus bandwidth of an operation against the size of its buffer.
 *
 * @param {string} title
 * @param {readonly Series[]} series
 * @returns {string} an SVG image for light and dark backgrounds
 */
export function drawCurves(title, series) {
  const points = series.flatMap((one) => one.points)
  const across = logarithmic(points.map(({ bytes }) => bytes))
  const sizes = [...new Set(points.map(({ bytes }) => bytes))].toSorted((a, b) => a - b)
  const panels = [
    panel(LEFT[0], 'microseconds (median)', 'us', decades(points.map(({ us }) => us))),
    panel(LEFT[1], 'bus bandwidth, GB/s', 'busbw', steps(points.map(({ busbw }) => busbw))),
  ]

  /**
   * @param {number | undefined} left
   * @param {string} heading
   * @param {'us' | 'busbw'} key
   * @param {Axis} axis
   */
  function panel(left = 0, heading, key, axis) {
    const x = (/** @type {number} */ bytes) => round(left + across(bytes) * PANEL.width)
    const y = (/** @type {number} */ value) => round(TOP + (1 - axis.place(value)) * PANEL.height)
    const rows = axis.marks.map(
      (mark) =>
        `<line class="grid" x1="${left}" x2="${left + PANEL.width}" y1="${y(mark)}" y2="${y(mark)}"/>` +
        `<text class="quiet end" x="${left - 8}" y="${y(mark) + 4}">${mark}</text>`,
    )
    const every = Math.ceil(sizes.length / 5)
    const columns = sizes
      .filter((_, i) => i % every === 0)
      .map(
        (bytes) =>
          `<text class="quiet middle" x="${x(bytes)}" y="${TOP + PANEL.height + 20}">${formatBytes(bytes)}</text>`,
      )
    const lines = series.map(({ isPeer, points }, i) => {
      const places = points.map((point) => `${x(point.bytes)} ${y(point[key])}`)
      const dots = places.map((place) => {
        const [cx, cy] = place.split(' ')
        return `<circle class="dot-${i}" cx="${cx}" cy="${cy}" r="2.5"/>`
      })
      const path = `<path class="line-${i}${isPeer ? ' peer' : ''}" d="M ${places.join(' L ')}"/>`
      return path + dots.join('')
    })
    const label = `<text class="quiet" x="${left}" y="${TOP - 12}">${heading}</text>`
    return [label, ...rows, ...columns, ...lines].join('\n')
  }

  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img" aria-labelledby="title">
<title id="title">${title}: time and bus bandwidth by size of the buffer</title>
<style>${style}
</style>
<rect class="card" x="0.5" y="0.5" width="${WIDTH - 1}" height="${HEIGHT - 1}" rx="8"/>
<text class="title" x="20" y="28">${title}</text>
${legend(series)}
${panels.join('\n')}
</svg>
`
}

/** @param {readonly Series[]} series */
function legend(series) {
  const items = series.map(({ name, isPeer }, i) => {
    const x = 20 + (i % PER_ROW) * 228
    const y = 52 + Math.floor(i / PER_ROW) * 20
    const line = `<path class="line-${i}${isPeer ? ' peer' : ''}" d="M ${x} ${y} h 22"/>`
    return `${line}<text x="${x + 28}" y="${y + 4}">${name}</text>`
  })
  return items.join('\n')
}

/** @typedef {{ marks: number[], place: (value: number) => number }} Axis - place: 0 to 1 */

/**
 * @param {readonly number[]} values
 * @returns {Axis} logarithmic, over whole decades
 */
function decades(values) {
  const first = Math.floor(Math.log10(Math.min(...values)))
  const last = Math.max(first + 1, Math.ceil(Math.log10(Math.max(...values))))
  return {
    marks: Array.from({ length: last - first + 1 }, (_, i) => Number(`1e${first + i}`)),
    place: (value) => (Math.log10(value) - first) / (last - first),
  }
}

/**
 * @param {readonly number[]} values
 * @returns {Axis} from 0, in steps of 1, 2 or 5 times a power of ten
 */
function steps(values) {
  const highest = Math.max(...values)
  const unit = 10 ** Math.floor(Math.log10(highest))
  const step = [0.2, 0.5, 1, 2].map((share) => share * unit).find((size) => highest / size <= 5)
  const size = step ?? unit * 2
  const count = Math.ceil(highest / size)
  return {
    marks: Array.from({ length: count + 1 }, (_, i) => Number((i * size).toPrecision(3))),
    place: (value) => value / (count * size),
  }
}

/** @param {readonly number[]} values */
function logarithmic(values) {
  const [low, high] = [Math.log2(Math.min(...values)), Math.log2(Math.max(...values))]
  return (/** @type {number} */ value) =>
    high === low ? 0.5 : 0.02 + (0.96 * (Math.log2(value) - low)) / (high - low)
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 10) / 10
}
