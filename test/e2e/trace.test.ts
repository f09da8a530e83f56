import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tsrunHere } from '../launcher/support/in-process.ts'
import { killLeftovers, Run, tsrun, until, type Finished } from '../launcher/support/tsrun.ts'

const cwd = fileURLToPath(new URL('../fixtures/ranks/', import.meta.url))

/** The folder of a trace of three ranks that save checkpoints, and how that job ended. */
const traced = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
let job: Finished
beforeAll(async () => {
  const env = { CHECKPOINTS: join(traced, 'checkpoints') }
  job = await tsrun(['--nproc', '3', '--trace', traced, 'traced.mjs'], { cwd, env })
})
afterAll(() => {
  rmSync(traced, { recursive: true, force: true })
})

let folder = ''
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true, force: true })
})

interface Slice {
  readonly name: string
  readonly cat: string
  readonly ph: string
  readonly tid: number
  readonly ts: number
  readonly dur: number
  readonly args: Readonly<Record<string, unknown>>
}

/** Copies the trace of three ranks into the folder of the test. */
function copyTrace(): void {
  cpSync(traced, folder, { recursive: true, preserveTimestamps: true })
}

function slices(file = join(folder, 'trace.json')): Slice[] {
  const { traceEvents } = JSON.parse(readFileSync(file, 'utf8')) as { traceEvents: Slice[] }
  return traceEvents
}

/** How often each category is there, on a rank. */
function counts(rank: number): Record<string, number> {
  const found: Record<string, number> = {}
  for (const { ph, cat, args } of slices()) {
    if (ph === 'X' && args['rank'] === rank) found[cat] = (found[cat] ?? 0) + 1
  }
  return found
}

it('--trace records and summarizes the operations of every rank without a change of the program', async () => {
  copyTrace()
  const { code, stderr } = job
  expect({ code, stderr }).toEqual({ code: 0, stderr })
  expect(stderr).toMatch(
    /^tsrun: trace: \S+trace\.json \([\d,]+ spans of ranks 0-2\), which \S+ opens; tsrun trace \S+ summarizes it$/m,
  )
  for (const rank of [0, 1, 2]) {
    expect(counts(rank)).toMatchObject({ step: 6, F: 24, B: 24, optimizer: 6 })
    // two saves
    expect(counts(rank)['checkpoint']).toBe(2)
    expect(counts(rank)['input']).toBeGreaterThanOrEqual(6)
  }
  // four micro-batches forth and back, in six steps
  const messages = slices().filter(({ name }) => /^(activation|gradient) of /.test(name))
  for (const cat of ['send', 'recv']) {
    const own = messages.filter((each) => each.cat === cat && each.args['rank'] === 1)
    expect(own).toHaveLength(48)
  }
  const arrows = slices().filter(({ ph }) => ph === 's' || ph === 'f')
  expect(arrows.filter(({ ph }) => ph === 's').length).toBe(arrows.length / 2)
  expect(arrows.length).toBeGreaterThanOrEqual(2 * 96)

  const { stdout } = await tsrunHere(['trace', folder])
  expect(stdout).toMatch(/^run \S+: 3 ranks on 1 host; means of 6 steps, 1 to 6$/m)
  expect(stdout).toMatch(
    /^rank +step +compute +bubble +imbalance +communication +input +overhead$/m,
  )
  expect(stdout).toMatch(/^critical path: /m)
  const json = await tsrunHere(['trace', folder, '--json', '--steps', '2:3'])
  const summary = JSON.parse(json.stdout) as {
    steps: object
    byRank: { step: number; shares: Record<string, number> }[]
  }
  expect(summary.steps).toEqual({ first: 2, last: 3, count: 2 })
  for (const { step, shares } of summary.byRank) {
    expect(Object.values(shares).reduce((sum, each) => sum + each, 0)).toBeCloseTo(step, 6)
  }
  // A rank that other programs delayed may have had no time to wait.
  expect(Math.max(...summary.byRank.map(({ shares }) => shares['bubble']!))).toBeGreaterThan(0)
})

it('--trace-steps records only the selected steps', async () => {
  const args = ['--nproc', '2', '--trace', folder, '--trace-steps', '2:3', 'traced.mjs']
  expect(await tsrun(args, { cwd })).toMatchObject({ code: 0 })
  expect(counts(0)).toMatchObject({ step: 2, F: 8, B: 8 })
  const steps = slices().filter(({ cat }) => cat === 'step')
  expect(new Set(steps.map(({ name }) => name))).toEqual(new Set(['step 2', 'step 3']))
})

it('a trace has the operations before the death of a rank, and all attempts of a job', async () => {
  const args = ['--nproc', '2', '--max-restarts', '1', '--grace', '1', '--trace', folder]
  const { code } = await tsrun([...args, 'traced.mjs'], { cwd, env: { KILLED_IN: '4' } })
  expect(code).toBe(137)
  // three steps of each attempt
  expect(counts(1)).toMatchObject({ step: 6, F: 24 })
  const { stdout } = await tsrunHere(['trace', folder])
  expect(stdout).toMatch(/, the last of 2 attempts; means of 3 steps, 1 to 3$/m)
})

it('tsrun trace merges a trace that the launcher could not merge', async () => {
  const run = new Run(['--nproc', '2', '--trace', folder, 'paced.mjs'], { cwd })
  const files = (): string[] => {
    const spans = join(folder, 'spans')
    return existsSync(spans) ? readdirSync(spans, { recursive: true }).map(String) : []
  }
  await until(() => files().filter((name) => name.endsWith('.spans')).length === 2, 'ranks write')
  const sizes = (): number[] =>
    files().flatMap((name) =>
      name.endsWith('.spans') ? [statSync(join(folder, 'spans', name)).size] : [],
    )
  await until(() => sizes().every((size) => size > 2000), 'their spans are in the files')
  run.signal('SIGKILL')
  await run.finished
  expect(existsSync(join(folder, 'trace.json'))).toBe(false)
  // one of another run is not taken for it
  writeFileSync(join(folder, 'trace.json'), '')
  utimesSync(join(folder, 'trace.json'), 1, 1)
  const { code, stdout } = await tsrunHere(['trace', folder])
  expect({ code, stdout }).toEqual({ code: 0, stdout })
  expect(stdout).toContain(`written: ${join(folder, 'trace.json')}`)
  expect(counts(0)['collective']).toBeGreaterThan(2)
  expect((await tsrunHere(['trace', folder])).stdout).not.toContain('written: ')
})

it('tsrun trace reads the trace of several hosts from several folders', async () => {
  copyTrace()
  const run = runIn(folder)
  const hosts = [0, 1, 2].map((rank) => {
    const host = join(folder, `host-${rank}`)
    cpSync(join(folder, 'spans'), join(host, 'spans'), {
      recursive: true,
      filter: (path) => !path.endsWith('.spans') || path.includes(`.rank-${rank}.`),
    })
    return host
  })
  const ranks = async (...folders: string[]): Promise<string> => {
    const { stdout, stderr } = await tsrunHere(['trace', ...folders], { cwd })
    expect(stderr).toBe('')
    return stdout.split('\n', 1)[0]!
  }
  expect(await ranks(...hosts)).toContain(`run ${run}: 3 ranks on 1 host`)
  // Neither a folder that is named twice nor a copy of a file counts twice.
  expect(await ranks(hosts[0]!, `${hosts[0]!}/.`, hosts[2]!)).toContain(': 2 ranks')
  expect(await ranks(folder, hosts[1]!)).toContain(': 3 ranks')
  const other = join(folder, 'other')
  await tsrun(['--trace', other, 'traced.mjs'], { cwd })
  const mixed = await tsrunHere(['trace', ...hosts, other], { cwd })
  expect(mixed.stdout).toContain(`run ${runIn(other)}: 1 rank on`)
  for (const host of hosts) {
    expect(mixed.stderr).toContain(`${host}: it has nothing of run ${runIn(other)}`)
  }
})

it('an empty trace is reported with its reason', async () => {
  const empty = await tsrun(['--trace', folder, '../launcher/hello.mjs'], { cwd })
  expect(empty.stderr).toContain(
    'the trace is empty: only ranks that call initProcessGroup() are traced',
  )
  const late = await tsrun(['--trace', folder, '--trace-steps', '900:', 'paced.mjs'], { cwd })
  expect(late.stderr).toContain('the trace is empty: no rank has reported such a step')
  expect(late.code).toBe(0)
})

it.each([
  [['--trace-steps', '1:2', 'paced.mjs'], '--trace-steps needs --trace DIR'],
  [['--trace', '.', '--trace-steps', '2:1', 'paced.mjs'], 'steps from 1, as in 10:20'],
  [['trace', 'nowhere'], 'nowhere is not a folder'],
  [['trace', '.', '--steps', 'x'], '--steps is "x"; expected steps from 1'],
  [['trace', '.'], 'there is no trace in .; tsrun --trace DIR writes one'],
  [['trace', '.', '--run', 'r'], 'there is no trace of a run r in .'],
])('tracing refuses %j', async (args, text) => {
  const { code, stderr } = await tsrunHere(args, { cwd })
  expect(code).toBe(2)
  expect(stderr).toContain(text)
})

it('--trace refuses a folder that cannot be created before anything starts', async () => {
  writeFileSync(join(folder, 'file'), '')
  const { code, stderr } = await tsrunHere(['--trace', join(folder, 'file', 'x'), 'paced.mjs'], {
    cwd,
  })
  expect(code).toBe(2)
  expect(stderr).toMatch(/^tsrun: --trace: ENOTDIR/m)
})

it('tsrun trace prints the summary even if it cannot write trace.json', async () => {
  copyTrace()
  rmSync(join(folder, 'trace.json'))
  mkdirSync(join(folder, 'trace.json'))
  const { code, stdout, stderr } = await tsrunHere(['trace', folder, '--run', runIn(folder)], {
    cwd,
  })
  expect({ code, stderr }).toEqual({
    code: 0,
    stderr: expect.stringMatching(/cannot write .*is a folder/),
  })
  expect(stdout).toContain('critical path: ')
})

function runIn(directory: string): string {
  return readdirSync(join(directory, 'spans'))[0]!
}

it('--trace does not trace a nested job', async () => {
  const env = { TSRUN_TRACE_DIR: '/tmp/outer', TSRUN_TRACE_RANGE: '2:3', TSRUN_TRACE_BYTES: '9' }
  const { stdout } = await tsrunHere(['--dry-run', 'paced.mjs'], { cwd, env })
  expect(stdout).toMatch(/TSRUN_TRACE_DIR=$/m)
  const traced = await tsrunHere(['--dry-run', '--trace', folder, 'paced.mjs'], { cwd, env })
  expect(traced.stdout).toMatch(/TSRUN_TRACE_RANGE=$/m)
  expect(traced.stdout).toMatch(/TSRUN_TRACE_BYTES=1073741824$/m)
})

it('--trace-max-size drops the oldest steps, and tsrun says so', async () => {
  const args = ['--nproc', '2', '--trace', folder, '--trace-max-size', '1K', 'paced.mjs']
  const { code, stderr } = await tsrun(args, { cwd })
  expect(code).toBe(0)
  expect(stderr).toContain('trace: it begins late, because a rank has written more than 1000 B')
  const steps = slices().flatMap(({ cat, args }) => (cat === 'step' ? Number(args['step']) : []))
  expect(steps).not.toContain(1)
})
