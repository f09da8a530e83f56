// Checks which file imports which: the rules of .dependency-cruiser.mjs, no cycle of run-time
// imports between files, and no cycle of imports of any kind between folders.
// node scripts/architecture/check.mjs [folder of the repository]
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import rules from '../../.dependency-cruiser.mjs'
import { fileCycles, folderCycles } from './graph.mjs'
import { readImports } from './imports.mjs'

const root = resolve(process.argv[2] ?? fileURLToPath(new URL('../..', import.meta.url)))
const { files, imports, violations } = await readImports(root)

const findings = [
  ...rules.forbidden.map(({ name, comment }) => ({
    heading: `${name}: ${comment}`,
    lines: violations
      .filter(({ rule }) => rule === name)
      .map(({ from, to }) => `${from} imports ${to}`),
  })),
  ...fileCycles(imports).map((cycle) => ({
    heading: 'file-cycle: Files must not import each other at run time.',
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
  console.log(`${files.length} files, ${imports.length} imports: none is forbidden, and no cycles.`)
}

/** @param {import('./graph.mjs').Edge} edge */
function describe({ from, to, example }) {
  if (from === example.from) return `${from} imports ${to}`
  return `${from} imports ${to}: ${example.from} imports ${example.to}`
}
