// Prints how large the packages are, and how often an idea is implemented: npm run architecture.
// node scripts/architecture/report.mjs [folder of another checkout]
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { figuresOf } from './figures.mjs'
import { readImports } from './imports.mjs'
import { readPackages } from './packages.mjs'
import { walks } from './walks.mjs'

const root = resolve(process.argv[2] ?? fileURLToPath(new URL('../..', import.meta.url)))
const packages = readPackages(root)
const { imports } = await readImports(root)
const figures = figuresOf(root, packages, imports, await walksOf(root))

print([
  ['package', 'files', 'lines', 'tokens', 'names', 'of them types'],
  ...packages.map(({ name, sources, lines, tokens, names }) => [
    name,
    ...[
      sources.length,
      lines,
      tokens,
      names.length,
      names.filter((each) => each.isType).length,
    ].map(shown),
  ]),
])
print([
  ['figure', 'today', 'bound', ''],
  ...figures.map(({ what, value, bound, which = [] }) => [
    what,
    shown(value),
    bound === undefined ? '' : shown(bound),
    which.join(', '),
  ]),
])

/**
 * The walks as that checkout describes them, and those that it does not know yet as they are here.
 *
 * @param {string} folder
 */
async function walksOf(folder) {
  const file = join(folder, 'scripts/architecture/walks.mjs')
  const own = existsSync(file) ? (await import(pathToFileURL(file).href)).walks : []
  return walks.map((walk) => ({
    ...walk,
    steps:
      own.find((/** @type {{ name: string }} */ each) => each.name === walk.name)?.steps ??
      walk.steps,
  }))
}

/** @param {number} value */
function shown(value) {
  return value.toLocaleString('en')
}

/** @param {readonly (readonly string[])[]} rows whose first column is text, and the fifth of figures */
function print(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)))
  for (const row of rows) {
    const cells = row.map((cell, i) => {
      if (row[i] === row.at(-1)) return cell
      return i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i])
    })
    console.log(cells.join('  ').trimEnd())
  }
  console.log('')
}
