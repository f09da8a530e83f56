import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { transformSync } from 'esbuild'
import { blocksOf } from './markdown.ts'
import { userPages } from './pages.ts'
import { root, runShell, withProject, type Outcome } from './run.ts'

/** Milliseconds that a program or command of the documentation may take. */
export const limit = 240_000

/** All fenced blocks of the pages for users. */
export const blocks = userPages.flatMap((page) =>
  blocksOf(page, readFileSync(join(root, page), 'utf8')),
)

const executed = blocks.filter(({ notExecuted }) => notExecuted === undefined)

/** The TypeScript programs that are executed. */
export const programs = executed.filter(({ language }) => language === 'ts')
/** The shell commands that are executed. */
export const commands = executed.filter(({ language }) => language === 'sh')

/** Compiles all programs with the settings of a reader, against the published types. */
export async function compilePrograms(): Promise<Outcome> {
  const files = Object.fromEntries(programs.map(({ text }, i) => [`program-${i}.ts`, text]))
  const compilerOptions = {
    ...{ strict: true, skipLibCheck: true, types: ['node'], noEmit: true },
    ...{ target: 'es2023', module: 'nodenext', moduleDetection: 'force' },
  }
  const project = { ...files, 'tsconfig.json': JSON.stringify({ compilerOptions }) }
  return await withProject(project, (folder) =>
    runShell('node node_modules/typescript/bin/tsc -p .', folder, limit),
  )
}

/** The JavaScript of each program, whatever its types. */
export function transpilePrograms(): string[] {
  return programs.map(
    ({ text }) => transformSync(text, { loader: 'ts', target: 'es2023', format: 'esm' }).code,
  )
}
