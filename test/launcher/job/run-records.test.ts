import { existsSync, mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { keptLogs, readRuns, recordRun } from '../../internals/launcher/job.ts'

const run = { runId: 'r1', script: 'train.ts', logDir: undefined }

it.each([
  ['has no fields', '{"format":1}'],
  ['is another version', '{"format":2}'],
  ['is cut off', '{"format":1,"runId":"r0"'],
  ['has a folder that is a number', 'logDir'],
])('run records: skips a record that %s', (_, damage) => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
  const env = { TSRUN_RUNS_DIR: folder }
  recordRun(env, folder, run)(0)
  const [whole] = readRuns(env)
  const text = damage === 'logDir' ? JSON.stringify({ ...whole, logDir: 7 }) : damage
  writeFileSync(join(folder, `r0@${hostname()}.json`), text, { mode: 0o600 })
  recordRun(env, folder, { ...run, runId: 'r2' })(3)
  expect(
    readRuns(env)
      .map(({ runId }) => runId)
      .sort(),
  ).toEqual(['r1', 'r2'])
})

describe('the output of jobs without --log-dir', () => {
  let home: string
  beforeEach(() => (home = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))

  /** Runs a job whose ranks write so many bytes. */
  const play = (runId: string, bytes: number): void => {
    const env = { TSRUN_HOME: home, TSRUN_RUNS_DIR: '' }
    const logDir = keptLogs(env)!
    const end = recordRun(env, home, { ...run, runId, logDir })
    mkdirSync(join(logDir, runId, 'attempt_0', '0'), { recursive: true })
    writeFileSync(join(logDir, runId, 'attempt_0', '0', 'stdout.log'), Buffer.alloc(bytes))
    end(0)
  }

  it('is kept of the last five jobs', () => {
    for (let i = 0; i < 8; i++) play(`run${i}`, 10)
    expect(readdirSync(join(home, 'logs'))).toEqual(['run3', 'run4', 'run5', 'run6', 'run7'])
    expect(readRuns({ TSRUN_HOME: home })).toHaveLength(5)
  })

  it('is deleted earlier if it has more than 8 MiB when a job starts', () => {
    for (const [i, mebibytes] of [3, 3, 6, 1].entries()) play(`run${i}`, mebibytes * 2 ** 20)
    expect(readdirSync(join(home, 'logs'))).toEqual(['run2', 'run3'])
  })

  it('is not kept if TSRUN_KEEP_LOGS is 0, or if the folder cannot be made', () => {
    expect(keptLogs({ TSRUN_HOME: home, TSRUN_KEEP_LOGS: '0' })).toBeUndefined()
    expect(existsSync(join(home, 'logs'))).toBe(false)
    writeFileSync(join(home, 'file'), '')
    expect(keptLogs({ TSRUN_HOME: join(home, 'file') })).toBeUndefined()
  })
})
