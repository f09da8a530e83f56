// Draws a walk from its first call to its last: a row for each file, indented by its folder.

const ROW = 38
const BOX = { width: 320, height: 28 }
const INDENT = 56
const MARGIN = 14
/** Room for the names of functions to the right of the boxes. */
const TEXT = 300

const STYLE = `<style>
  text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .number, .function { fill: #59636e }
  .number { font-size: 10px; text-anchor: end }
  .paper { fill: #ffffff }
  .box { fill: #f3f6f9; stroke: #2f6fca }
  .call { fill: none; stroke: #59636e }
  .tip { fill: #59636e }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .number, .function { fill: #9198a1 }
    .paper { fill: #0d1117 }
    .box { fill: #1c2129; stroke: #4c8ef0 }
    .call { stroke: #9198a1 }
    .tip { fill: #9198a1 }
  }
</style>`

/**
 * @param {import('./walks.mjs').Walk} walk
 * @returns {string} an SVG image
 */
export function drawWalk({ title, steps }) {
  const folders = [...new Set(steps.map(({ file }) => folderOf(file)))]
  /** @type {Map<string, { x: number, y: number }>} */
  const places = new Map()
  /** @type {string[]} */
  const calls = []
  for (const [i, { file, calledBy = steps[i - 1]?.file }] of steps.entries()) {
    if (places.has(file)) continue
    const x = MARGIN + folders.indexOf(folderOf(file)) * INDENT
    const place = { x, y: MARGIN + places.size * ROW }
    places.set(file, place)
    const caller = places.get(calledBy ?? '')
    if (caller !== undefined) calls.push(call(caller, place))
  }
  const boxes = [...places].map(([file, { x, y }], i) => {
    const functions = steps.filter((step) => step.file === file).flatMap((step) => step.functions)
    const name = `${folderOf(file)}/${file.split('/').at(-1)}`
    return [
      `<rect class="box" x="${x}" y="${y}" width="${BOX.width}" height="${BOX.height}" rx="3"/>`,
      `<text class="number" x="${x + BOX.width - 6}" y="${y + 18}">${i + 1}</text>`,
      `<text x="${x + 10}" y="${y + 18.5}">${name}</text>`,
      `<text class="function" x="${x + BOX.width + 10}" y="${y + 18.5}">${[...new Set(functions)].join(', ')}</text>`,
    ].join('')
  })
  const width = 2 * MARGIN + (folders.length - 1) * INDENT + BOX.width + TEXT
  const height = 2 * MARGIN + (places.size - 1) * ROW + BOX.height
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${title}">
${STYLE}
<rect class="paper" width="${width}" height="${height}"/>
${[...calls, ...boxes].join('\n')}
</svg>
`
}

/**
 * An arrow from one box to another below it.
 *
 * @param {{ x: number, y: number }} caller
 * @param {{ x: number, y: number }} callee
 */
function call(caller, callee) {
  const [x, top, middle] = [caller.x + 20, caller.y + BOX.height, callee.y + BOX.height / 2]
  if (callee.x > x + 8) {
    return `<path class="call" d="M ${x} ${top} V ${middle} H ${callee.x - 6}"/><path class="tip" d="M ${callee.x} ${middle} l -7 -3.5 v 7 z"/>`
  }
  return `<path class="call" d="M ${x} ${top} V ${callee.y - 6}"/><path class="tip" d="M ${x} ${callee.y} l -3.5 -7 h 7 z"/>`
}

/**
 * `distributed/engine` of a file in packages/distributed/src/engine/, however deep it is.
 *
 * @param {string} file
 */
function folderOf(file) {
  const [, name, , ...path] = file.split('/')
  return [name, ...path.slice(0, -1)].join('/')
}
