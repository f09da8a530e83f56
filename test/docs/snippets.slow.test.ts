import { jest } from '@jest/globals'
import { commands, compilePrograms, limit, programs, type Compiled } from './programs.ts'
import { root, runShell, withProject } from './run.ts'

jest.setTimeout(limit + 10_000)

let compiled: Compiled

describe('README.md, docs and the packages', () => {
  // once for all: a loader in each rank would take longer than most programs
  beforeAll(async () => {
    compiled = await compilePrograms()
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
