// Draws the packages, and the folders of one package, in layers. An arrow leads to what is imported.
import { instance } from '@viz-js/viz'
import { entryEdges, layersOf, withoutShortcuts } from './graph.mjs'

/** @typedef {import('./imports.mjs').Import} Import */

const STYLE = `<style>
  text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .package > text[font-weight], .cluster > text { font-weight: 600; font-size: 13px }
  .graph > polygon, .package > polygon[fill='white'], .folder > polygon { fill: #ffffff }
  .package > polygon[fill='grey'], .cluster > polygon { fill: #f3f6f9 }
  .package > polygon[fill='none'], .cluster > polygon { stroke: #8c959f }
  .folder > polygon { stroke: #2f6fca }
  .file > polygon { fill: none; stroke: none }
  .edge > path { stroke: #59636e }
  .edge > polygon { fill: #59636e; stroke: #59636e }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .graph > polygon, .package > polygon[fill='white'], .folder > polygon { fill: #0d1117 }
    .package > polygon[fill='grey'], .cluster > polygon { fill: #1c2129 }
    .package > polygon[fill='none'], .cluster > polygon { stroke: #6e7681 }
    .folder > polygon { stroke: #4c8ef0 }
    .edge > path { stroke: #9198a1 }
    .edge > polygon { fill: #9198a1; stroke: #9198a1 }
  }
</style>`

/** The layout measures text in Helvetica. Text is shown smaller, because the fonts in STYLE are wider. */
const DEFAULTS = `
  compound=true pad=0.1 nodesep=0.16 ranksep=0.36 fontname="Helvetica-Bold" fontsize=15 labeljust=l
  node [shape=box fontname=Helvetica fontsize=14 height=0.3 margin="0.13,0.05"]
  edge [arrowsize=0.6]`

/** How many folders or files the drawing of all packages puts beside each other. */
const COLUMNS = 5

/**
 * All packages with their folders, and the imports between packages.
 *
 * @param {readonly string[]} files
 * @param {readonly Import[]} imports
 * @returns {Promise<string>} an SVG image
 */
export function drawPackages(files, imports) {
  const edges = withoutShortcuts(entryEdges(imports, 'packages'))
  return render('The packages and their folders', [
    ...packagesOf(files).map((name) => packageNode(name, files, imports)),
    ...edges.map(({ from, to }) => `"${from}" -> "${to}"`),
  ])
}

/**
 * The folders of a package, and the imports between them.
 *
 * @param {string} name
 * @param {readonly string[]} files
 * @param {readonly Import[]} imports
 * @returns {Promise<string>} an SVG image
 */
export function drawFolders(name, files, imports) {
  return render(
    `The folders of the package ${name}`,
    entries(`packages/${name}/src`, files, imports),
  )
}

/** @param {readonly string[]} files */
function packagesOf(files) {
  const names = files.map((file) => /^packages\/([^/]+)/.exec(file)?.[1])
  return [...new Set(names)].filter((name) => name !== undefined)
}

/**
 * A package as a table: a row of folders for each layer, or the names of its files.
 *
 * @param {string} name
 * @param {readonly string[]} files
 * @param {readonly Import[]} imports
 */
function packageNode(name, files, imports) {
  const folder = `packages/${name}/src`
  const inside = entriesOf(folder, files)
  const folders = inside.filter((entry) => entry.endsWith('/'))
  const rows =
    folders.length > 2
      ? layersOf(folders, entryEdges(imports, folder)).flatMap((layer) => chunks(layer))
      : chunks(
          inside
            .filter((entry) => entry !== 'index.ts' && !entry.endsWith('.d.ts'))
            .map((entry) => entry.replace('.ts', '')),
        )
  const cell = folders.length > 2 ? 'border="1" bgcolor="white"' : 'border="0"'
  const table = rows.map((row) => {
    const cells = row.map((entry) => `<td ${cell}>${entry}</td>`)
    return `<tr><td border="0"><table border="0" cellspacing="6" cellpadding="7"><tr>${cells.join('')}</tr></table></td></tr>`
  })
  const heading = `<tr><td border="0" align="left"><b>${name}</b></td></tr>`
  return `"${name}/" [class=package shape=plain label=<<table border="1" bgcolor="grey" cellborder="0" cellspacing="0" cellpadding="2">${heading}${table.join('')}</table>>]`
}

/**
 * The entries of a folder as nodes, and their imports as edges. A sub-folder that has sub-folders itself
 * is a frame around these.
 *
 * @param {string} folder
 * @param {readonly string[]} files
 * @param {readonly Import[]} imports
 * @returns {string[]} lines in the DOT language
 */
function entries(folder, files, imports) {
  const isFrame = (/** @type {string} */ entry) => foldersOf(`${folder}/${entry}`, files).length > 0
  const isInside = folder.split('/').length > 3
  const shown = entriesOf(folder, files).filter(
    (entry) => entry.endsWith('/') || (!isInside && entry !== 'index.ts'),
  )
  const nodes = shown.map((entry) => {
    const path = `${folder}/${entry}`
    if (!entry.endsWith('/')) return `"${path}" [class=file label="${entry}"]`
    if (!isFrame(entry)) return `"${path}" [class=folder label="${entry}"]`
    const inner = entries(path.slice(0, -1), files, imports)
    return `subgraph "cluster_${path}" {\nlabel="${entry}"\n${inner.join('\n')}\n}`
  })
  const edges = withoutShortcuts(entryEdges(imports, folder))
    .filter(({ from, to }) => shown.includes(from) && shown.includes(to))
    .map(({ from, to }) => {
      const [tail, head] = [from, to].map((entry) => `${folder}/${entry}`)
      const ends = [
        ...(isFrame(from) ? [`ltail="cluster_${tail}"`] : []),
        ...(isFrame(to) ? [`lhead="cluster_${head}"`] : []),
      ]
      return `"${nodeIn(tail, files)}" -> "${nodeIn(head, files)}" [${ends.join(' ')}]`
    })
  return [...nodes, ...edges]
}

/**
 * A node to which an edge of a frame can be attached.
 *
 * @param {string} path
 * @param {readonly string[]} files
 * @returns {string}
 */
function nodeIn(path, files) {
  const [first] = foldersOf(path, files)
  return first === undefined ? path : nodeIn(`${path}${first}`, files)
}

/**
 * @param {string} folder
 * @param {readonly string[]} files
 */
function entriesOf(folder, files) {
  const inside = files.filter((file) => file.startsWith(`${folder}/`))
  return [...new Set(inside.map((file) => file.slice(folder.length + 1).replace(/\/.*/, '/')))]
}

/**
 * @param {string} path of a file, or of a folder with a slash at its end
 * @param {readonly string[]} files
 */
function foldersOf(path, files) {
  if (!path.endsWith('/')) return []
  return entriesOf(path.slice(0, -1), files).filter((entry) => entry.endsWith('/'))
}

/**
 * @param {readonly string[]} list
 * @returns {string[][]}
 */
function chunks(list) {
  const rows = Math.ceil(list.length / COLUMNS)
  const length = Math.ceil(list.length / rows)
  return Array.from({ length: rows }, (_, i) => list.slice(i * length, (i + 1) * length))
}

/**
 * @param {string} title
 * @param {readonly string[]} lines in the DOT language
 */
async function render(title, lines) {
  const viz = await instance()
  const drawn = viz.renderString(`digraph {\n${DEFAULTS}\n${lines.join('\n')}\n}`, {
    format: 'svg',
  })
  const [, width, height] = /<svg width="(\d+)pt" height="(\d+)pt"/.exec(drawn) ?? []
  return drawn
    .slice(drawn.indexOf('<g '))
    .replace(/<!--.*?-->\n/gs, '')
    .replace(/ xml:space="preserve"/g, '')
    .replace(
      /^/,
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${title}">\n${STYLE}\n`,
    )
}
