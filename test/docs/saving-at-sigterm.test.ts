import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { latestCheckpoint } from '@tsrun/training'
import ts from 'typescript'
import { blocksOf } from './markdown.ts'
import { root, withProject } from './run.ts'

it('docs/launcher.md shows a program that saves a checkpoint when the job is stopped', async () => {
  const page = readFileSync(join(root, 'docs/launcher.md'), 'utf8')
  const [block, ...others] = blocksOf('launcher.md', page).filter(
    ({ language, text }) => language === 'ts' && text.includes("process.on('SIGTERM'"),
  )
  expect(others).toEqual([])
  const program = ts.transpileModule(block!.text, {
    compilerOptions: { target: ts.ScriptTarget.ES2023, module: ts.ModuleKind.ESNext },
  })

  await withProject({ 'program.js': program.outputText }, async (folder) => {
    const tsrun = join(root, 'node_modules/.bin/tsrun')
    const endless = ['--nproc', '2', '--grace', '60', 'program.js', '1000000']
    const job = spawn(tsrun, endless, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    const isTraining = new Promise<void>((resolve) => {
      const collect = (text: string): void => {
        output += text
        if (/step \d+/.test(output)) resolve()
      }
      job.stdout.setEncoding('utf8').on('data', collect)
      job.stderr.setEncoding('utf8').on('data', collect)
    })
    const ended = once(job, 'close') as Promise<[number | null]>
    await Promise.race([isTraining, ended])
    expect(existsSync(join(folder, 'checkpoints'))).toBe(false)

    job.kill('SIGTERM')
    const [code] = await ended
    expect({ code, output }).toEqual({ code: 143, output })
    const saved = Number(/saved step (\d+)/.exec(output)?.[1])
    expect(await latestCheckpoint(join(folder, 'checkpoints'))).toMatchObject({ step: saved })
  })
})
