// Import cycles between files and between folders.

/**
 * @typedef {import('./imports.mjs').Import} Import
 * @typedef {{ from: string, to: string, example: Import }} Edge
 */

/**
 * Cycles of files that import each other at run time.
 *
 * @param {readonly Import[]} imports
 * @param {{ withTypes?: boolean }} [options] whether imports of types alone count, too
 * @returns {Edge[][]} one shortest cycle for each group of files that reach each other
 */
export function fileCycles(imports, { withTypes = false } = {}) {
  const edges = imports
    .filter(({ typeOnly }) => withTypes || !typeOnly)
    .map((example) => ({ from: example.from, to: example.to, example }))
  return components(edges).map(shortestCycle)
}

/**
 * Cycles that a folder takes part in, by imports of any kind. In every folder the entries are
 * compared: its files, and its sub-folders, each with all that is below it. Files of one folder that
 * import each other's types are not such a cycle.
 *
 * @param {readonly Import[]} imports
 * @returns {{ folder: string, cycle: Edge[] }[]}
 */
export function folderCycles(imports) {
  const folders = new Set(imports.flatMap(({ from, to }) => [...ancestors(from), ...ancestors(to)]))
  return [...folders].sort().flatMap((folder) => {
    const edges = entryEdges(imports, folder)
    return components(edges)
      .filter((component) => component.some(({ from }) => from.endsWith('/')))
      .map((component) => ({ folder, cycle: shortestCycle(component) }))
  })
}

/**
 * The imports between the entries of a folder: `file.ts` and `sub-folder/`.
 *
 * @param {readonly Import[]} imports
 * @param {string} folder
 * @returns {Edge[]}
 */
export function entryEdges(imports, folder) {
  const inside = `${folder}/`
  const entryOf = (/** @type {string} */ file) => file.slice(inside.length).replace(/\/.*/, '/')
  const edges = new Map()
  for (const example of imports) {
    if (!example.from.startsWith(inside) || !example.to.startsWith(inside)) continue
    const [from, to] = [entryOf(example.from), entryOf(example.to)]
    if (from !== to) edges.set(`${from} ${to}`, { from, to, example })
  }
  return [...edges.values()]
}

/** @param {string} file */
function ancestors(file) {
  const parts = file.split('/').slice(0, -1)
  return parts.map((_, i) => parts.slice(0, i + 1).join('/'))
}

/**
 * The strongly connected components of more than one node (Tarjan, 1972), as their inner edges.
 *
 * @param {readonly Edge[]} edges
 * @returns {Edge[][]}
 */
function components(edges) {
  /** @type {Map<string, string[]>} */
  const next = new Map()
  for (const { from, to } of edges) {
    next.set(from, [...(next.get(from) ?? []), to])
    if (!next.has(to)) next.set(to, [])
  }
  const index = new Map()
  const low = new Map()
  const component = new Map()
  /** @type {string[]} */
  const open = []
  const visit = (/** @type {string} */ node) => {
    index.set(node, index.size)
    low.set(node, index.get(node))
    open.push(node)
    for (const other of next.get(node)) {
      if (!index.has(other)) {
        visit(other)
        low.set(node, Math.min(low.get(node), low.get(other)))
      } else if (!component.has(other)) {
        low.set(node, Math.min(low.get(node), index.get(other)))
      }
    }
    if (low.get(node) !== index.get(node)) return
    for (let other; other !== node;) {
      other = open.pop()
      component.set(other, node)
    }
  }
  for (const node of next.keys()) if (!index.has(node)) visit(node)

  const inner = new Map()
  for (const edge of edges) {
    const name = component.get(edge.from)
    if (name !== component.get(edge.to) || edge.from === edge.to) continue
    inner.set(name, [...(inner.get(name) ?? []), edge])
  }
  return [...inner.values()]
}

/**
 * @param {readonly Edge[]} component edges of one strongly connected component
 * @returns {Edge[]}
 */
function shortestCycle(component) {
  const cycles = component.map((edge) => [edge, ...shortestPath(component, edge.to, edge.from)])
  return cycles.reduce((best, cycle) => (cycle.length < best.length ? cycle : best))
}

/**
 * @param {readonly Edge[]} edges
 * @param {string} start
 * @param {string} end
 * @returns {Edge[] | undefined} undefined if there is no path
 */
function shortestPath(edges, start, end) {
  const paths = new Map([[start, []]])
  for (const [node, path] of paths) {
    for (const edge of edges) {
      if (edge.from === node && !paths.has(edge.to)) paths.set(edge.to, [...path, edge])
    }
  }
  return paths.get(end)
}

/**
 * The edges without those that a longer path makes superfluous (transitive reduction).
 *
 * @param {readonly Edge[]} edges
 * @returns {Edge[]}
 */
export function withoutShortcuts(edges) {
  let kept = [...edges]
  for (const edge of edges) {
    const others = kept.filter((other) => other !== edge)
    if (shortestPath(others, edge.from, edge.to) !== undefined) kept = others
  }
  return kept
}

/**
 * The nodes by layers: what imports nothing is in the last one, and each node is in the lowest layer that
 * is above all that it imports.
 *
 * @param {readonly string[]} nodes
 * @param {readonly Edge[]} edges without cycles
 * @returns {string[][]}
 */
export function layersOf(nodes, edges) {
  /** @type {Map<string, number>} */
  const heights = new Map()
  const heightOf = (/** @type {string} */ node) => {
    const known = heights.get(node)
    if (known !== undefined) return known
    heights.set(node, 0)
    const below = edges.filter(({ from }) => from === node).map(({ to }) => heightOf(to) + 1)
    heights.set(node, Math.max(0, ...below))
    return heights.get(node)
  }
  const highest = Math.max(...nodes.map(heightOf))
  return Array.from({ length: highest + 1 }, (_, i) =>
    nodes.filter((node) => heightOf(node) === highest - i),
  )
}
