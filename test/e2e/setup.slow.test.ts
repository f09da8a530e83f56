import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readBlasManifest, readTensorFlowManifest, writeManifest } from '@tsrun/core'
import { FakeBlas, withCompiler } from '../doctor/support/fake-blas.ts'
import { fakeTools } from '../doctor/support/fake-tools.ts'
import { killLeftovers, Run, tsrun, until } from '../launcher/support/tsrun.ts'

const all = ['npm', 'python3', 'g++'] as const

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-setup-'))
})
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
})

const setUp = (env: NodeJS.ProcessEnv, ...flags: string[]) =>
  tsrun(['setup', 'tensorflow', ...flags], { env })

/** What lies in the folder of the set-up. */
const contents = (env: NodeJS.ProcessEnv): string[] =>
  readdirSync(join(env['TSRUN_HOME']!, 'tensorflow')).sort()

describe('a set-up that is interrupted', () => {
  /** The process that a fake tool has become, once it hangs. */
  const hanging = async (env: NodeJS.ProcessEnv): Promise<number> => {
    const text = (): string => (existsSync(env['MARK']!) ? readFileSync(env['MARK']!, 'utf8') : '')
    await until(() => text().endsWith('\n'), 'the download begins', 60_000)
    return Number(text())
  }

  it.each(['NPM', 'PIP'])(
    'by Ctrl-C in %s keeps the previous installation and leaves no process',
    async (tool) => {
      const env = fakeTools(folder, all)
      expect((await setUp(env)).code).toBe(0)
      const before = readTensorFlowManifest(env)
      const run = new Run(['setup', 'tensorflow', '--gpu'], { env: { ...env, [tool]: 'hang' } })
      const pid = await hanging(env)
      run.signal('SIGINT')
      expect(await run.finished).toMatchObject({
        code: 130,
        stderr:
          'tsrun setup: interrupted; the previous installation, if there was one, is unchanged\n',
      })
      await until(() => !existsSync(`/proc/${pid}`), 'the download has ended')
      expect(readTensorFlowManifest(env)).toEqual(before)
      expect(contents(env)).toHaveLength(3)
      expect((await setUp(env, '--check')).code).toBe(0)
    },
  )

  withCompiler.describe('of a BLAS', () => {
    const blas = new FakeBlas()

    it('by Ctrl-C keeps the previous installation and leaves no process', async () => {
      const env: NodeJS.ProcessEnv = { ...fakeTools(folder, ['python3']), BLAS: blas.path }
      expect((await tsrun(['setup', 'blas'], { env })).code).toBe(0)
      const before = { ...readBlasManifest(env)!, version: '0.3.1' }
      writeManifest('blas', before, env)
      const run = new Run(['setup', 'blas'], { env: { ...env, PIP: 'hang' } })
      const pid = await hanging(env)
      run.signal('SIGINT')
      expect((await run.finished).code).toBe(130)
      await until(() => !existsSync(`/proc/${pid}`), 'the download has ended')
      expect(readBlasManifest(env)).toEqual(before)
      expect(readdirSync(join(env['TSRUN_HOME']!, 'blas'))).toHaveLength(3)
      expect((await tsrun(['setup', 'blas', '--check'], { env })).code).toBe(0)
    })
  })

  it('by SIGKILL keeps the previous installation, and the next set-up cleans up and succeeds', async () => {
    const env = fakeTools(folder, all)
    expect((await setUp(env)).code).toBe(0)
    const before = readTensorFlowManifest(env)
    const run = new Run(['setup', 'tensorflow', '--gpu'], { env: { ...env, PIP: 'hang' } })
    const pid = await hanging(env)
    run.signal('SIGKILL')
    await run.finished
    process.kill(pid, 'SIGKILL')
    expect(readTensorFlowManifest(env)).toEqual(before)
    expect((await setUp(env, '--check')).code).toBe(0)
    expect(contents(env)).toHaveLength(4)
    expect((await setUp(env, '--gpu')).code).toBe(0)
    expect(contents(env)).toHaveLength(3)
    expect(readTensorFlowManifest(env)).not.toEqual(before)
  })
})
