// What the pictures of docs/images share: colours for light and dark backgrounds, text, cells and arrows.

const style = `
  text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .card { fill: #ffffff; stroke: #d1d9e0 }
  .empty { fill: #eef1f4 }
  .of-0 { fill: #2f6fca } .of-1 { fill: #f2a93b } .of-2 { fill: #3a9d6e } .of-3 { fill: #b95fc0 }
  .sum { fill: #1f2328 }
  .value { font-size: 12px; text-anchor: middle; fill: #ffffff } .value.on-1 { fill: #3b2500 }
  .title { font-size: 15px; font-weight: 600 }
  .quiet { fill: #59636e }
  .middle { text-anchor: middle } .end { text-anchor: end }
  .line { stroke: #59636e; stroke-width: 1.5; fill: none } .head { fill: #59636e }
  .outline { stroke: #d1242f; stroke-width: 2.5; fill: none }
  .fade-in { stop-color: #ffffff; stop-opacity: 0 } .fade-out { stop-color: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .card { fill: #0d1117; stroke: #30363d }
    .empty { fill: #1d232b }
    .of-0 { fill: #4c8ef0 } .of-1 { fill: #e0983a } .of-2 { fill: #4fbf8b } .of-3 { fill: #cf86d6 }
    .sum { fill: #e6edf3 }
    .value, .value.on-1 { fill: #06142b }
    .quiet { fill: #9198a1 }
    .line { stroke: #9198a1 } .head { fill: #9198a1 }
    .outline { stroke: #ff7b72 }
    .fade-in { stop-color: #0d1117 } .fade-out { stop-color: #0d1117 }
  }`

const definitions = `<defs>
<linearGradient id="fade"><stop class="fade-in"/><stop offset="0.85" class="fade-out"/></linearGradient>
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto-start-reverse"><path class="head" d="M0 0L8 4L0 8z"/></marker>
</defs>`

/**
 * An SVG image on a card. Screen readers read its title and its description.
 *
 * @param {{ title: string, description: string, width: number, height: number }} facts
 * @param {readonly string[]} body
 */
export function picture({ title, description, width, height }, body) {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="title" aria-describedby="desc">
<title id="title">${escaped(title)}</title>
<desc id="desc">${escaped(description)}</desc>
<style>${style}
</style>
${definitions}
<rect class="card" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>
${body.join('\n')}
</svg>
`
}

/** @param {string} text */
function escaped(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
}

/**
 * @param {number} x
 * @param {number} y of the baseline
 * @param {string} content
 * @param {string} [names] classes
 */
export function text(x, y, content, names = '') {
  const attribute = names === '' ? '' : ` class="${names}"`
  return `<text${attribute} x="${x}" y="${y}">${escaped(content)}</text>`
}

/**
 * A title, and facts after it.
 *
 * @param {number} x
 * @param {number} y
 * @param {string} title
 * @param {string} facts
 */
export function heading(x, y, title, facts) {
  return `<text x="${x}" y="${y}"><tspan class="title">${escaped(title)}</tspan><tspan class="quiet" dx="12">${escaped(facts)}</tspan></text>`
}

/**
 * @param {string} name class
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
export function rect(name, x, y, width, height) {
  return `<rect class="${name}" x="${x}" y="${y}" width="${width}" height="${height}" rx="2"/>`
}

/**
 * A rectangle with a value in it.
 *
 * @param {number | 'sum'} origin the rank whose colour it has
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {string | number} value
 */
export function cell(origin, x, y, width, height, value) {
  const fill = origin === 'sum' ? origin : `of-${origin}`
  const label = text(x + width / 2, y + height / 2 + 4.5, String(value), `value on-${origin}`)
  return rect(fill, x, y, width, height) + label
}

/**
 * A rectangle with a stripe for each of some of four ranks.
 *
 * @param {readonly number[]} ranks
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
export function stripes(ranks, x, y, width, height) {
  const stripe = width / 4
  const drawn = ranks.map(
    (rank) =>
      `<rect class="of-${rank}" x="${x + rank * stripe}" y="${y}" width="${stripe}" height="${height}"/>`,
  )
  return rect('empty', x, y, width, height) + drawn.join('')
}

/**
 * @param {readonly [x: number, y: number]} from
 * @param {readonly [x: number, y: number]} to
 */
export function arrow(from, to) {
  return `<path class="line" d="M${from.join(' ')}L${to.join(' ')}" marker-end="url(#head)"/>`
}

/**
 * An arrow to the left and to the right.
 *
 * @param {number} left
 * @param {number} right
 * @param {number} y
 */
export function doubleArrow(left, right, y) {
  return `<path class="line" d="M${left} ${y}H${right}" marker-start="url(#head)" marker-end="url(#head)"/>`
}

/**
 * Boxes with their meanings, in a row.
 *
 * @param {number} x
 * @param {readonly { name: string, text: string, width?: number }[]} items
 */
export function legend(x, items) {
  return items.map((item) => {
    const { name, width = 18 } = item
    const drawn = rect(name, x, 20, width, 18) + text(x + width + 7, 34, item.text)
    x += width + 24 + item.text.length * 7
    return drawn
  })
}
