import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { killLeftovers, Run, untilGone } from '../launcher/support/tsrun.ts'
import { needing } from '../needs.ts'

/** Of each kind, with the seeds from `ENDS_SEED`; `ENDS=1000 npm run test:slow -- test/e2e/ends` runs many. */
const count = Number(process.env['ENDS'] ?? 8)
const firstSeed = Number(process.env['ENDS_SEED'] ?? 1)
/** Jobs of four ranks at a time: several for each core, so that every wait may take long. */
const ATONCE = 3 * availableParallelism()
/** Milliseconds in which each job must have ended. */
const BOUND = 60_000

jest.setTimeout(60_000 + count * 20_000)
const script = '../ranks/ends.mjs'
let temporary = ''
beforeEach(() => (temporary = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  killLeftovers()
  rmSync(temporary, { recursive: true, force: true })
})

interface End {
  readonly seed: number
  readonly code: number | null | 'still there'
  readonly stderr: string
}

async function runOne(what: string, seed: number, args: readonly string[]): Promise<End> {
  const flags = ['--nproc', '4', '--grace', '1', '--no-summary', ...args]
  const run = new Run([...flags, script, what, String(seed)], { env: { TMPDIR: temporary } })
  let timer: NodeJS.Timeout | undefined
  const bound = new Promise<'still there'>((resolve) => {
    timer = setTimeout(resolve, BOUND, 'still there')
  })
  const code = await Promise.race([run.finished.then((end) => end.code), bound])
  clearTimeout(timer)
  await untilGone([run.pid], 10_000)
  return { seed, code, stderr: run.stderr }
}

/** All seeds, several at a time. */
async function runAll(what: string, args: readonly string[] = []): Promise<End[]> {
  const seeds = Array.from({ length: count }, (_, i) => firstSeed + i)
  const ends: End[] = []
  const work = async (): Promise<void> => {
    for (let seed = seeds.shift(); seed !== undefined; seed = seeds.shift()) {
      ends.push(await runOne(what, seed, args))
    }
  }
  await Promise.all(Array.from({ length: ATONCE }, work))
  return ends
}

it('a job whose ranks pass different dtypes ends with an error', async () => {
  const ends = await runAll('other-dtype')
  expect(ends.filter(({ code }) => code !== 1)).toEqual([])
  for (const { stderr } of ends) expect(stderr).toContain('float64')
})

it('a job ends if a rank has closed its stderr', async () => {
  const ends = await runAll('closed-stderr')
  // Node itself may abort where it writes to what is closed.
  expect(ends.filter(({ code }) => ![0, 1, 134].includes(Number(code)))).toEqual([])
})

// Not even root can write there.
const readOnly = '/sys/kernel'
const { it: itIfReadOnly } = needing(existsSync(readOnly), '/sys')

itIfReadOnly('a job with a log directory that cannot be written ends', async () => {
  const ends = await runAll('none', ['--log-dir', join(readOnly, 'tsrun-logs')])
  expect(ends.filter(({ code }) => code === 0 || code === 'still there')).toEqual([])
})
