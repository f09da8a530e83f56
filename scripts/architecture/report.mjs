// Prints how large the packages are, and how often an idea is implemented: npm run architecture.
// node scripts/architecture/report.mjs [folder of another checkout] [--write]
// With --write, the table of packages goes to docs/decisions/0019-the-house.md, too.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { format, resolveConfig } from 'prettier'
import { figuresOf } from './figures.mjs'
import { readImports } from './imports.mjs'
import { readPackages } from './packages.mjs'
import { walks } from './walks.mjs'

const [folder] = process.argv.slice(2).filter((argument) => argument !== '--write')
const root = resolve(folder ?? fileURLToPath(new URL('../..', import.meta.url)))
const packages = readPackages(root)
const { imports } = await readImports(root)
const figures = figuresOf(root, packages, imports, await walksOf(root))

const sizes = [
  ['package', 'files', 'lines', 'tokens', 'public names', 'of them types'],
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
]
print(sizes)
if (process.argv.includes('--write'))
  await writeTable(join(root, 'docs/decisions/0019-the-house.md'))

print([
  ['figure', 'today', 'bound', ''],
  ...figures.map(({ what, value, bound, which = [] }) => [
    what,
    shown(value),
    bound === undefined ? '' : shown(bound),
    which.join(', '),
  ]),
])

/** @param {string} page with marks around the table */
async function writeTable(page) {
  const [head, ...rows] = sizes.map((row) => `| ${row.join(' | ')} |`)
  const table = [head, '| --- |' + ' ---: |'.repeat(sizes[0].length - 1), ...rows].join('\n')
  const marks = /(<!-- generated: size -->\n).*?(<!-- end -->)/s
  const text = readFileSync(page, 'utf8').replace(marks, `$1\n${table}\n\n$2`)
  writeFileSync(page, await format(text, { ...(await resolveConfig(page)), parser: 'markdown' }))
}

/**
 * The walks as that checkout describes them, and those that it does not know yet as they are here.
 *
 * @param {string} checkout
 */
async function walksOf(checkout) {
  const file = join(checkout, 'scripts/architecture/walks.mjs')
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
