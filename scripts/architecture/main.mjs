// Writes the generated parts of docs/architecture.md and its drawings: npm run docs.
// With --check, writes nothing and fails if one of them is out of date or a walk is wrong.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { problemsOf } from './check-walk.mjs'
import { readImports } from './imports.mjs'
import { generate } from './page.mjs'
import { walks } from './walks.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const graph = await readImports(root)
const generated = Object.entries(await generate(root, graph))
const isCurrent = (/** @type {string} */ file, /** @type {string} */ text) =>
  existsSync(join(root, file)) && readFileSync(join(root, file), 'utf8') === text

const problems = walks.flatMap((walk) =>
  problemsOf(root, walk, graph.imports).map((problem) => `walk ${walk.name}: ${problem}`),
)
if (process.argv.includes('--check')) {
  const old = generated.filter(([file, text]) => !isCurrent(file, text))
  problems.push(...old.map(([file]) => `${file} is out of date; npm run docs writes it`))
} else {
  for (const [file, text] of generated) writeFileSync(join(root, file), text)
}
for (const problem of problems) console.error(problem)
process.exitCode = problems.length > 0 ? 1 : 0
