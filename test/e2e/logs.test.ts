import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { tsrunHere, type HereFinished } from '../launcher/support/in-process.ts'
import { allFinished, node } from '../launcher/support/nodes.ts'
import { killLeftovers, Run, tsrun, type Finished } from '../launcher/support/tsrun.ts'

let folder: string
let env: NodeJS.ProcessEnv
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-logs-'))
  // The tests' own TSRUN_RUNS_DIR would come first.
  env = { TSRUN_HOME: join(folder, 'home'), TSRUN_RUNS_DIR: '' }
})
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true, force: true })
})

const logs = (...args: string[]): Promise<HereFinished> => tsrunHere(['logs', ...args], { env })
const logDir = (): string => join(folder, 'logs')
const kept = (...args: string[]): string[] => ['--no-summary', '--log-dir', logDir(), ...args]
const runIds = (): string[] => readdirSync(logDir())

interface Event {
  readonly event: string
  readonly [name: string]: unknown
}
const path = (name: string): string => join(folder, name)
const eventsOf = (text: string): Event[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Event)
const read = (name: string): Event[] => eventsOf(readFileSync(path(name), 'utf8'))

describe('tsrun logs', () => {
  it('neither writes nor reads records in a world-writable folder', async () => {
    const home = join(folder, 'home')
    expect((await tsrun(kept('hello.mjs'), { env })).code).toBe(0)
    expect(readdirSync(join(home, 'runs'))).toHaveLength(1)
    chmodSync(home, 0o777)
    expect((await tsrun(kept('hello.mjs'), { env })).code).toBe(0)
    expect(readdirSync(join(home, 'runs'))).toHaveLength(1)
    expect(await logs()).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no run of yours is known on this host'),
    })
  })

  it('shows all or part of the output of a job in the same order', async () => {
    const run = await tsrun(kept('--nproc', '3', 'much.mjs', '700'), { env })
    expect(run.code).toBe(0)
    const [runId] = runIds()
    for (const given of [
      [],
      [runId!],
      [runId!.slice(0, -2)],
      [logDir()],
      [join(logDir(), runId!)],
    ]) {
      const { code, stdout, stderr } = await logs(...given)
      expect({ given, code, stderr, isSame: stdout === run.stdout }).toEqual({
        given,
        code: 0,
        stderr: '',
        isSame: true,
      })
    }
    const lines = run.stdout.trimEnd().split('\n')
    const tail = await logs('--tail', '5')
    expect(tail.stdout.trimEnd().split('\n')).toEqual(lines.slice(-5))
    const some = await logs('--rank', '0,2', '-n', '800')
    const wanted = lines.filter((line) => !line.startsWith('[rank 1]'))
    expect(some.stdout.trimEnd().split('\n')).toEqual(wanted.slice(-800))
  })

  it('follows a job until it ends, and shows the files of a killed launcher', async () => {
    const run = new Run(kept('--nproc', '2', 'die.mjs', 'code', '1', 'asked'), { env })
    const ranks = await run.announced(2)
    const follower = new Run(['logs', '--follow', ...runIds()], { env })
    const stopped = new Run(['logs', '-f', '--rank', '0'], { env })
    await follower.announced(2)
    await stopped.announced(1)
    stopped.signal('SIGINT')
    expect(await stopped.finished).toMatchObject({ code: 130 })
    run.ask(ranks, (rank) => rank === 1)
    const { code, stdout } = await run.finished
    expect(code).toBe(5)
    const followed = await follower.finished
    expect(followed).toMatchObject({ code: 0, stdout, stderr: '[rank 1] a last word on stderr\n' })

    const killed = new Run(kept('--nproc', '2', 'wait.mjs'), { env })
    await killed.announced(2)
    const again = new Run(['logs', '-f'], { env })
    await again.announced(2)
    killed.signal('SIGKILL')
    expect(await again.finished).toMatchObject({ code: 0, stdout: killed.stdout })
  })

  it('shows the output of the last jobs without --log-dir, which only this user can read', async () => {
    const { code, stdout, stderr } = await tsrun(['--no-summary', 'die.mjs', 'code', '0'], { env })
    expect({ code, stderr }).toEqual({ code: 5, stderr: expect.not.stringContaining('logs ') })
    expect(await logs()).toMatchObject({ code: 0, stdout })
    expect(statSync(join(folder, 'home', 'logs')).mode & 0o777).toBe(0o700)
  })

  it('shows log files that were rotated as one text', async () => {
    const { stdout } = await tsrun(kept('--log-max-size', '30K', 'much.mjs', '7000'), { env })
    const lines = stdout.trimEnd().split('\n')
    const shown = (await logs()).stdout.trimEnd().split('\n')
    expect(shown.length).toBeGreaterThan(250)
    expect(shown.length).toBeLessThan(3000)
    expect(shown).toEqual(lines.slice(-shown.length))
    expect((await logs('--tail', '200')).stdout.trimEnd().split('\n')).toEqual(lines.slice(-200))
  })

  it('follows a job that --detach has put in the background', async () => {
    const run = await tsrun(['--detach', '--no-summary', 'die.mjs', 'code', '0'], { env })
    expect({ code: run.code, stderr: run.stderr }).toEqual({ code: 0, stderr: '' })
    const [, runId] = /^run (\S+) is in the background$/m.exec(run.stdout)!
    expect(run.stdout).toMatch(/^ {2}output {2}tsrun logs \S+ --follow$/m)
    expect(run.stdout).toMatch(/^ {2}stop {4}kill \d+$/m)
    const { code, stderr } = await logs(runId!, '--follow')
    expect(code).toBe(0)
    expect(stderr).toContain('a last word on stderr')
    expect(stderr).toMatch(/first cause {2}.* exited with code 5/)
    const refused = await tsrun(['--detach', 'nowhere.mjs'], { env })
    expect(refused).toMatchObject({ code: 2, stdout: '' })
    expect(refused.stderr).toContain('there is no file')
  })

  it('asks for --log-dir if --detach would lose the output', async () => {
    for (const [nproc, kept] of [
      ['129', '1'],
      ['1', '0'],
    ] as const) {
      const { code, stderr } = await tsrun(['--nproc', nproc, '--detach', 'hello.mjs'], {
        env: { ...env, TSRUN_KEEP_LOGS: kept },
      })
      expect(code).toBe(2)
      expect(stderr).toMatch(/needs --log-dir DIR.*more than 128 ranks.*TSRUN_KEEP_LOGS is 0/)
    }
  })

  it('says which run or file is missing', async () => {
    const refused = async (problem: string, ...args: string[]): Promise<void> => {
      const { code, stderr } = await logs(...args)
      expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(problem) })
    }
    await refused('no run of yours is known on this host. The output of the last five jobs is kept')
    await tsrun(kept('hello.mjs'), { env })
    await tsrun(['hello.mjs'], { env: { ...env, TSRUN_KEEP_LOGS: '0' } })
    const [runId] = runIds()
    await refused('its output was not kept')
    const elsewhere = { env: { ...env, TSRUN_RUNS_DIR: join(folder, 'runs') } }
    expect(await tsrunHere(['logs'], elsewhere)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no run of yours is known'),
    })
    await tsrun(['hello.mjs'], elsewhere)
    expect(readdirSync(join(folder, 'runs'))).toHaveLength(1)
    await refused('no run of this host has this id; the newest are', 'nothing')
    await refused('several ids begin so: ', runId!.slice(0, 4))
    await refused('there are no log files of a run in this folder', folder)
    await refused('--rank names 5-6, but the files are of 0', runId!, '--rank', '5,6')
    await refused('--tail is "some"; expected a number of lines', '--tail', 'some')
  })
})

describe('--event-log', () => {
  it('records signals, and writes to stderr with --event-log-handler console', async () => {
    const run = new Run([
      '--nproc',
      '2',
      '--event-log-handler',
      'console',
      '--no-summary',
      'wait.mjs',
    ])
    await run.announced(2)
    run.signal('SIGTERM')
    const { code, stderr } = await run.finished
    expect(code).toBe(143)
    const events = eventsOf(stderr.replaceAll(/^[^{].*\n/gm, ''))
    expect(events).toContainEqual(
      expect.objectContaining({ event: 'signal-received', signal: 'SIGTERM', force: false }),
    )
    const exits = events.filter(({ event }) => event === 'rank-exited')
    expect(exits).toMatchObject([0, 1].map(() => ({ signal: 'SIGTERM', stoppedBy: 'SIGTERM' })))
    expect(events.slice(-2)).toMatchObject([
      { event: 'verdict', outcome: 'interrupted', exitCode: 143 },
      { event: 'launcher-finished', exitCode: 143 },
    ])
  })

  it('records the ranks of its own host, and on node 0 the events of the whole job', async () => {
    const runs = [0, 1].map((rank) =>
      node(rank, 2, ['--nproc', '2', '--event-log', path(`node-${rank}`), 'hello.mjs']),
    )
    expect(await allFinished(runs)).toMatchObject([{ code: 0 }, { code: 0 }])
    const [zero, one] = [read('node-0'), read('node-1')]
    const joined = (events: Event[]): Event[] =>
      events.filter(({ event }) => event === 'node-joined')
    expect(joined(zero)).toMatchObject([
      { joined: { node: 0, ranks: [0, 1] } },
      { joined: { node: 1, ranks: [2, 3] } },
    ])
    expect(joined(one)).toEqual([])
    const spawned = (events: Event[]): unknown[] =>
      events.filter(({ event }) => event === 'rank-spawned').map(({ rank }) => rank)
    expect([spawned(zero), spawned(one)]).toEqual([
      [0, 1],
      [2, 3],
    ])
    expect(zero.map(({ event }) => event)).toContain('verdict')
    expect(one.map(({ event }) => event)).not.toContain('verdict')
    expect(one.at(-1)).toMatchObject({
      event: 'launcher-finished',
      node: 1,
      job: zero.at(-1)!['job'],
    })
  })

  it('records the loss of another host', async () => {
    const zero = node(0, 2, ['--event-log', path('node-0'), 'wait.mjs'])
    const one = node(1, 2, ['wait.mjs'])
    await Promise.all([zero.announced(1), one.announced(1)])
    one.signal('SIGKILL')
    expect((await zero.finished).code).not.toBe(0)
    const left = read('node-0').filter(({ event }) => event === 'node-left')
    expect(left).toMatchObject([{ left: { node: 1, reason: 'its launcher has ended' } }])
  })

  it('records complete checkpoints', async () => {
    const job = ['--nproc', '2', '--event-log', path('events'), 'checkpoints.mjs']
    expect(await tsrun([...job, path('saved')])).toMatchObject({ code: 0 })
    const saved = read('events').filter(({ event }) => event === 'checkpoint-saved')
    expect(saved).toMatchObject([7, 8].map((step) => ({ rank: 0, step })))
    for (const { path: place } of saved) expect(existsSync(String(place))).toBe(true)
  })

  it('refuses a file that cannot be written, before anything starts', async () => {
    const { code, stdout, stderr } = await tsrunHere([
      '--event-log',
      join(folder, 'no', 'where'),
      'hello.mjs',
    ])
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toContain('no/where cannot be opened: ENOENT')
  })
})

it('a job that fails, restarts and fails again keeps the output and the events of all attempts', async () => {
  const args = ['--nproc', '3', '--max-restarts', '1', '--event-log', path('events')]
  const run = await tsrun(kept(...args, 'alike.mjs', 'die'), { env })
  expect(run.code).toBe(1)
  await expectOutputOfAttempts(run)
  expectEventsOfAttempts()
})

/** The files have the lines of all attempts; a stack trace of several ranks is shown once. */
async function expectOutputOfAttempts(run: Finished): Promise<void> {
  const once =
    '[ranks 0, 2] RangeError: the batch is empty\n[ranks 0, 2]     at load (file:///data.mjs:3:9)\n'
  expect(run.stderr.split(once)).toHaveLength(3)
  expect(run.stderr).toContain('first cause  rank')
  const { stdout, stderr } = await logs()
  expect(stdout).toBe(run.stdout)
  expect(stderr).toMatch(/tsrun: attempt 1\n/)
  // Printed, as is the error that ended them, which the job's report shows.
  expect(stderr.split(once)).toHaveLength(5)
}

function expectEventsOfAttempts(): void {
  const events = read('events')
  const names = events.map(({ event }) => event)
  const attempt = [
    'attempt-started',
    'rank-spawned',
    'rank-spawned',
    'rank-spawned',
    'checkpoint-saved',
    'rank-error',
    'rank-exited',
    'rank-exited',
    'rank-exited',
    'verdict',
  ]
  const first = names.indexOf('restart')
  const once = (some: readonly string[]): string[] =>
    [...some].filter((name) => name !== 'rank-error').sort()
  expect(once(names.slice(0, first))).toEqual(once(['launcher-started', 'node-joined', ...attempt]))
  expect(once(names.slice(first))).toEqual(once(['restart', ...attempt, 'launcher-finished']))
  expect([names[0], names.at(-1)]).toEqual(['launcher-started', 'launcher-finished'])
  for (const event of events.slice(1)) {
    expect(event).toMatchObject({
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      job: expect.stringMatching(/^\d{8}-\d{6}-[0-9a-f]{6}$/),
      host: expect.any(String),
      node: 0,
      generation: events.indexOf(event) > first ? 1 : 0,
    })
  }
  const one = (name: string): Event => events.find(({ event }) => event === name)!
  expect(one('checkpoint-saved')).toMatchObject({ rank: 0, step: 7, path: '/checkpoints/step-7' })
  expect(one('rank-error')).toMatchObject({ name: 'RangeError', message: 'the batch is empty' })
  expect(one('verdict')).toMatchObject({
    outcome: 'failure',
    exitCode: 1,
    error: 'RangeError: the batch is empty',
  })
  expect(one('restart')).toMatchObject({ number: 1, of: 1 })
  expect(events.at(-1)).toMatchObject({ exitCode: 1, seconds: expect.any(Number) })
}

it('--log-prefix and the flag and variable of torchrun set the prefix of each line', async () => {
  const { stdout } = await tsrun(['--nproc', '2', '--log-prefix', '<{rank}/{role}>', 'hello.mjs'])
  expect(stdout.trimEnd().split('\n').toSorted()).toEqual([
    '<0/default> hello from rank 0 of 2',
    '<1/default> hello from rank 1 of 2',
  ])
  const torch = { TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE: '[${role_name}${local_rank}]:' }
  const own = await tsrun(['hello.mjs'], { env: torch })
  expect(own.stdout).toBe('[default0]: hello from rank 0 of 1\n')
  const flag = ['--log-line-prefix-template', '${hostname} ${rank}:', 'hello.mjs']
  const { stdout: prefixed } = await tsrun(flag, { env: torch })
  expect(prefixed).toBe(`${hostname()} 0: hello from rank 0 of 1\n`)
})

it('the launcher logs what it does without, at the level info', async () => {
  const unusable = { TSRUN_RUNS_DIR: '/proc/none' }
  const logging = { ...unusable, TSRUN_LOG_LEVEL: 'info' }
  const { code, stderr } = await tsrun(['--nproc', '1', 'hello.mjs'], { env: logging })
  expect(code).toBe(0)
  const lines = stderr.split('\n').filter((line) => line.includes('no record of this run'))
  expect(JSON.parse(lines[0]!)).toMatchObject({ level: 30, name: 'launcher' })
  const silent = await tsrun(['--nproc', '1', 'hello.mjs'], { env: unusable })
  expect(silent.stderr).not.toContain('no record')
})
