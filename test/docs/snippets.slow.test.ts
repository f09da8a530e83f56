import { join } from 'node:path'
import { jest } from '@jest/globals'
import { commands, limit, programs, transpilePrograms } from './programs.ts'
import { root, runShell, withProject, type Outcome } from './run.ts'

jest.setTimeout(limit + 10_000)

const driver = join(root, 'test/fixtures/docs/one-after-the-other.mjs')
const scripts = transpilePrograms()

/** Programs that change what their process is, or lose ranks, have a job of their own. */
const ownProcess = /\b(spawn|shrink|reconfigure)\(|process\.(on|exit|argv|env)|loadBackend\('/

const numbered = programs.map((program, index) => ({ ...program, index }))
const alone = numbered.filter(({ text }) => ownProcess.test(text))
const together = numbered.filter(({ text }) => !ownProcess.test(text))

/** One job for all programs of so many ranks, each in a folder of its own. */
async function runTogether(ranks: number): Promise<Outcome> {
  const chosen = together.filter((program) => program.ranks === ranks)
  const files = Object.fromEntries(
    chosen.map(({ index }) => [`${index}/program.js`, scripts[index]!]),
  )
  return await withProject(files, (folder) => {
    const paths = Object.keys(files).map((name) => join(folder, name))
    const line = `node_modules/.bin/tsrun --nproc ${ranks} ${driver} ${paths.join(' ')}`
    return runShell(line, folder, limit)
  })
}

describe('README.md, docs and the packages', () => {
  const jobs = new Map<number, Promise<Outcome>>()

  if (together.length > 0) {
    it.each(together)('show a program that runs: $where', async ({ index, ranks }) => {
      const job = jobs.get(ranks) ?? runTogether(ranks)
      jobs.set(ranks, job)
      const { code, output } = await job
      const ended = output.match(new RegExp(`ended .*/${index}/program.js$`, 'gm')) ?? []
      // a program that fails, or does not leave its group, ends the job and those that come after it
      expect({ code, output, ended: ended.length }).toEqual({ code: 0, output, ended: ranks })
    })
  }

  if (alone.length > 0) {
    it.each(alone)('show a program that runs alone: $where', async ({ index, ranks }) => {
      const { code, output } = await withProject({ 'program.js': scripts[index]! }, (folder) =>
        runShell(`node_modules/.bin/tsrun --nproc ${ranks} program.js`, folder, limit),
      )
      expect({ code, output }).toEqual({ code: 0, output })
    })
  }

  if (commands.length > 0) {
    it.each(commands)('show commands that run: $where', async ({ text }) => {
      const { code, output } = await runShell(text, root, limit)
      expect({ code, output }).toEqual({ code: 0, output })
    })
  }
})
