import { mkdtempSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { readRuns, recordRun } from '../../internals/launcher/job.ts'

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
