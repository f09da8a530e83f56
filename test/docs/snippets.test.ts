import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { blocksOf } from './markdown.ts'
import { userPages } from './pages.ts'
import { type Outcome, root, runShell, withProject } from './run.ts'

const limit = 240_000
jest.setTimeout(limit + 10_000)

const blocks = userPages.flatMap((page) => blocksOf(page, readFileSync(join(root, page), 'utf8')))
const executed = blocks.filter(({ notExecuted }) => notExecuted === undefined)
const programs = executed.filter(({ language }) => language === 'ts')
const commands = executed.filter(({ language }) => language === 'sh')

/** The only excuses. */
const reasons = [
  'installs packages',
  'test/e2e/examples.test.ts runs it',
  'needs mpirun; test/interop/mpi runs it',
  'needs several machines',
  'runs these tests',
]

/** How a reader's `tsc` ends with all programs, and what it makes of each. */
let compiled: Outcome & { readonly scripts: readonly string[] }

describe('README.md, docs and the packages', () => {
  // once for all: a loader in each rank would take longer than most programs
  beforeAll(async () => {
    const files = Object.fromEntries(programs.map(({ text }, i) => [`program-${i}.ts`, text]))
    const compilerOptions = {
      ...{ strict: true, skipLibCheck: true, types: ['node'] },
      ...{ target: 'es2023', module: 'nodenext', moduleDetection: 'force' },
    }
    const project = { ...files, 'tsconfig.json': JSON.stringify({ compilerOptions }) }
    compiled = await withProject(project, async (folder) => {
      const ended = await runShell('node node_modules/typescript/bin/tsc -p .', folder, limit)
      const scripts = programs.map((_, i) => readFileSync(join(folder, `program-${i}.js`), 'utf8'))
      return { ...ended, scripts }
    })
  })

  it('marks what is shown so that it is executed, or says why not', () => {
    const given = blocks.flatMap(({ notExecuted }) => notExecuted ?? [])
    expect(reasons).toEqual(expect.arrayContaining(given))
    expect(given.length).toBeLessThanOrEqual(8)
    const languages = new Set(blocks.map(({ language }) => language))
    expect(['sh', 'ts', 'text', 'json', 'yaml']).toEqual(expect.arrayContaining([...languages]))
  })

  it('shows programs that type-check against the published types', () => {
    const { code, output } = compiled
    expect({ code, output }).toEqual({ code: 0, output: '' })
  })

  if (programs.length > 0) {
    const numbered = programs.map((program, index) => ({ ...program, index }))
    it.each(numbered)('shows a program that runs at $where', async ({ index, ranks }) => {
      const files = { 'program.js': compiled.scripts[index]! }
      const { code, output } = await withProject(files, (folder) =>
        runShell(`node_modules/.bin/tsrun --nproc ${ranks} program.js`, folder, limit),
      )
      expect({ code, output }).toEqual({ code: 0, output })
    })
  }

  if (commands.length > 0) {
    it.each(commands)('shows commands that run at $where', async ({ text }) => {
      const { code, output } = await runShell(text, root, limit)
      expect({ code, output }).toEqual({ code: 0, output })
    })
  }
})
