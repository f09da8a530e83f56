// Writes the public declarations of each package to test/workspace/api/<package>.txt, from its dist after
// `npm run build`: npm run public-api. With --check, writes nothing and fails if a file is out of date.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import ts from 'typescript'
import { folders, readManifest, root } from './manifests.mjs'

/** @typedef {{ name: string, file: string }} Entry what scripts import, and its declarations */

const target = join(root, 'test/workspace/api')
const printer = ts.createPrinter({ removeComments: true })

const entries = Object.fromEntries(folders.map((folder) => [folder, entriesOf(folder)]))
const program = ts.createProgram(
  Object.values(entries).flatMap((all) => all.map(({ file }) => file)),
  {
    module: ts.ModuleKind.NodeNext,
    allowImportingTsExtensions: true,
    noEmit: true,
    // Declarations are printed as they are written, so what they name elsewhere does not matter.
    noLib: true,
    types: [],
  },
)
const checker = program.getTypeChecker()

const outdated = Object.entries(entries).flatMap(([folder, all]) => {
  if (all.length === 0) return []
  const path = join(target, `${folder.slice('packages/'.length)}.txt`)
  const text = all.map((entry) => reportOf(folder, entry)).join('\n')
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return []
  if (!process.argv.includes('--check')) {
    mkdirSync(target, { recursive: true })
    writeFileSync(path, text)
  }
  return [relative(root, path)]
})
if (process.argv.includes('--check') && outdated.length > 0) {
  console.error(`${outdated.join(', ')}: the public declarations differ.`)
  console.error('If that is intended, run `npm run public-api`, and tell users in CHANGELOG.md.')
  process.exitCode = 1
}

/**
 * @param {string} folder of a package
 * @returns {Entry[]}
 */
function entriesOf(folder) {
  const { name, exports = {} } = readManifest(folder)
  return Object.entries(exports)
    .filter(([, conditions]) => conditions.types !== undefined)
    .map(([path, { types }]) => ({
      name: join(name, path),
      file: join(root, folder, types),
    }))
}

/**
 * The declarations of an entry by name, and those that they use and that it does not export.
 *
 * @param {string} folder
 * @param {Entry} entry
 */
function reportOf(folder, { name, file }) {
  const source = program.getSourceFile(file)
  const module = source && checker.getSymbolAtLocation(source)
  if (module === undefined) throw new Error(`${file} has no exports: run npm run build`)
  const isOwn = (/** @type {ts.Node} */ node) =>
    node.getSourceFile().fileName.startsWith(join(root, folder, 'dist/'))

  const exported = new Map(exportsOf(module))
  const shown = new Set(exported.values())
  /** @type {Map<string, ts.Symbol>} */
  const used = new Map()
  const queue = [...shown]
  for (const symbol of queue) {
    for (const declaration of declarationsOf(symbol).filter(isOwn)) {
      for (const other of symbolsIn(declaration)) {
        if (shown.has(other) || !declarationsOf(other).some(isOwn)) continue
        shown.add(other)
        used.set(other.name, other)
        queue.push(other)
      }
    }
  }
  const lines = (/** @type {Map<string, ts.Symbol>} */ symbols) =>
    [...symbols].sort(([a], [b]) => (a < b ? -1 : 1)).map((each) => textOf(each, isOwn))
  const others = used.size === 0 ? [] : ['# used by these, and not exported\n', ...lines(used)]
  return [`# ${name}\n`, ...lines(exported), ...others].join('\n')
}

/**
 * The exports of a module, those of its namespaces as `namespace.name`.
 *
 * @param {ts.Symbol} module
 * @returns {[name: string, symbol: ts.Symbol][]}
 */
function exportsOf(module) {
  return checker.getExportsOfModule(module).flatMap((symbol) => {
    const { name } = symbol
    const actual = resolved(symbol)
    return actual.flags & ts.SymbolFlags.ValueModule
      ? exportsOf(actual).map(([member, each]) => [`${name}.${member}`, each])
      : [[name, actual]]
  })
}

/** @param {ts.Symbol} symbol */
function resolved(symbol) {
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol
}

/**
 * The statements that declare a name of a module.
 *
 * @param {ts.Symbol} symbol
 * @returns {ts.Node[]}
 */
function declarationsOf({ declarations = [] }) {
  return declarations
    .map((node) => (ts.isVariableDeclaration(node) ? node.parent.parent : node))
    .filter(({ parent }) => parent !== undefined && ts.isSourceFile(parent))
}

/**
 * What a declaration refers to.
 *
 * @param {ts.Node} declaration
 * @returns {ts.Symbol[]}
 */
function symbolsIn(declaration) {
  /** @type {ts.Symbol[]} */
  const found = []
  const visit = (/** @type {ts.Node} */ node) => {
    const symbol = ts.isIdentifier(node) ? checker.getSymbolAtLocation(node) : undefined
    if (symbol !== undefined) found.push(resolved(symbol))
    ts.forEachChild(node, visit)
  }
  visit(declaration)
  return found
}

/**
 * @param {[name: string, symbol: ts.Symbol]} symbol
 * @param {(node: ts.Node) => boolean} isOwn
 */
function textOf([name, symbol], isOwn) {
  const own = declarationsOf(symbol).filter(isOwn)
  if (own.length === 0) return `${name}: of another package\n`
  const texts = own.map((node) =>
    printed(ts.transform(node, [withSortedUnions]).transformed[0], node.getSourceFile())
      .replace(/^export /, '')
      .replace(/^declare /, '')
      // docs/errors.md has the words of errors.
      .replaceAll(/^ *readonly (message|advice): ".*";\n/gm, ''),
  )
  const renamed = name === symbol.name ? '' : `${name} is\n`
  return `${renamed}${texts.join('\n')}\n`
}

/**
 * Sorts the members of unions. The order in which tsc writes inferred ones depends on what it has checked
 * before.
 *
 * @type {ts.TransformerFactory<ts.Node>}
 */
function withSortedUnions(context) {
  const visit = (/** @type {ts.Node} */ node) => {
    const visited = ts.visitEachChild(node, visit, context)
    if (!ts.isUnionTypeNode(visited)) return visited
    const texts = new Map(visited.types.map((type) => [type, printed(type, node.getSourceFile())]))
    const types = [...visited.types].sort((a, b) => (texts.get(a) < texts.get(b) ? -1 : 1))
    return ts.factory.createUnionTypeNode(types)
  }
  return visit
}

/** @param {ts.Node} node @param {ts.SourceFile} source */
function printed(node, source) {
  return printer.printNode(ts.EmitHint.Unspecified, node, source)
}
