// Checks which file imports which: the rules of .dependency-cruiser.mjs, no cycle of run-time
// imports between files, few that only types close, and no cycle of any kind between folders.
// node scripts/architecture/check.mjs [folder of the repository]
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import rules from '../../.dependency-cruiser.mjs'
import { fileCycles, folderCycles } from './graph.mjs'
import { readImports } from './imports.mjs'

/** How many groups of files may import each other if all their run-time imports lead one way. */
const TYPE_CYCLES = 3

const root = resolve(process.argv[2] ?? fileURLToPath(new URL('../..', import.meta.url)))
const { files, imports, violations } = await readImports(root)

const runTimeCycles = fileCycles(imports)
const typeCycles = fileCycles(imports, { withTypes: true }).filter((cycle) =>
  cycle.some(({ example }) => example.typeOnly),
)

const findings = [
  ...rules.forbidden.map(({ name, comment }) => ({
    heading: `${name}: ${comment}`,
    lines: violations
      .filter(({ rule }) => rule === name)
      .map(({ from, to }) => `${from} imports ${to}`),
  })),
  ...runTimeCycles.map((cycle) => ({
    heading: 'file-cycle: Files must not import each other at run time.',
    lines: cycle.map(describe),
  })),
  ...(typeCycles.length > TYPE_CYCLES ? typeCycles : []).map((cycle) => ({
    heading: `type-cycle: At most ${TYPE_CYCLES} groups of files may import each other's types.`,
    lines: cycle.map(describe),
  })),
  ...folderCycles(imports).map(({ folder, cycle }) => ({
    heading: `folder-cycle: In ${folder}, files and sub-folders must not import each other.`,
    lines: cycle.map(describe),
  })),
].filter(({ lines }) => lines.length > 0)

if (findings.length > 0) {
  for (const { heading, lines } of findings) {
    console.error([heading, ...lines.map((line) => `  ${line}`), ''].join('\n'))
  }
  process.exitCode = 1
} else {
  console.log(
    `${files.length} files, ${imports.length} imports: none is forbidden, and no cycles at run time.`,
  )
}

/** @param {import('./graph.mjs').Edge} edge */
function describe({ from, to, example }) {
  if (from === example.from) return `${from} imports ${to}`
  return `${from} imports ${to}: ${example.from} imports ${example.to}`
}
