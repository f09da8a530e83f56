import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { root } from './run.ts'

const packages = join(root, 'packages')

interface Manifest {
  readonly name: string
  readonly exports?: Readonly<Record<string, string | Readonly<Record<string, string>>>>
}

/** Each entry point by the name to import it by, with its source. */
const entries = readdirSync(packages).flatMap((folder) => {
  const text = readFileSync(join(packages, folder, 'package.json'), 'utf8')
  const { name, exports = {} } = JSON.parse(text) as Manifest
  return Object.entries(exports).flatMap(([entry, target]) =>
    typeof target === 'string'
      ? []
      : [[join(name, entry), join(packages, folder, target['@tsrun/source']!)] as const],
  )
})

const sources = readdirSync(packages, { recursive: true, encoding: 'utf8' })
  .filter((name) => /^[^/]+\/src\/.*(?<!\.as)\.ts$/.test(name))
  .map((name) => join(packages, name))
const program = ts.createProgram(sources, {
  ...{ noResolve: true, noLib: true, types: [], allowImportingTsExtensions: true },
  ...{ module: ts.ModuleKind.NodeNext, customConditions: ['@tsrun/source'] },
})
const checker = program.getTypeChecker()

/** The names that an entry point exports without any documentation. */
function undocumentedOf(source: string): string[] {
  const module = checker.getSymbolAtLocation(program.getSourceFile(source)!)
  const exported = checker.getExportsOfModule(module!)
  expect(exported.length).toBeGreaterThan(0)
  return exported.filter((symbol) => !isDocumented(symbol)).map(({ name }) => name)
}

function isDocumented(symbol: ts.Symbol): boolean {
  const isAlias = (symbol.flags & ts.SymbolFlags.Alias) !== 0
  const original = isAlias ? checker.getAliasedSymbol(symbol) : symbol
  // The declarations of other packages are not in the program.
  if (original.declarations === undefined) return true
  return [...original.declarations, ...symbol.declarations!].some(
    (node) => hasComment(node) || hasTypeOfMember(node),
  )
}

/** `export * as name` has its comment on the statement. */
function hasComment(node: ts.Node): boolean {
  const place = ts.isNamespaceExport(node) ? node.parent : node
  return ts.getJSDocCommentsAndTags(place).length > 0
}

/** `const send: ProcessGroup['send']` is documented there. */
function hasTypeOfMember(node: ts.Node): boolean {
  return (
    ts.isVariableDeclaration(node) &&
    node.type !== undefined &&
    ts.isIndexedAccessTypeNode(node.type)
  )
}

it.each(entries)('%s documents each name that it exports', (_, source) => {
  expect(undocumentedOf(source)).toEqual([])
})
