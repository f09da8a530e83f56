import { readFileSync } from 'node:fs'
import { join } from 'node:path'
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

/** How the compiler ended, and the JavaScript of each program. */
export interface Compiled extends Outcome {
  readonly scripts: readonly string[]
}

/** Compiles all programs with the settings of a reader, against the published types. */
export async function compilePrograms(): Promise<Compiled> {
  const files = Object.fromEntries(programs.map(({ text }, i) => [`program-${i}.ts`, text]))
  const compilerOptions = {
    ...{ strict: true, skipLibCheck: true, types: ['node'] },
    ...{ target: 'es2023', module: 'nodenext', moduleDetection: 'force' },
  }
  const project = { ...files, 'tsconfig.json': JSON.stringify({ compilerOptions }) }
  return await withProject(project, async (folder) => {
    const ended = await runShell('node node_modules/typescript/bin/tsc -p .', folder, limit)
    const scripts = programs.map((_, i) => readFileSync(join(folder, `program-${i}.js`), 'utf8'))
    return { ...ended, scripts }
  })
}
