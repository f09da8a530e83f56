import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import {
  killLeftovers,
  now,
  processState,
  Run,
  until,
  untilGone,
} from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

/** The figure of the project: no rank survives its launcher by more, in ms. */
const LIMIT = 2000

const pidsOf = (ranks: readonly { pid: number }[]): number[] => ranks.map(({ pid }) => pid)

describe('Ctrl-C', () => {
  it('once stops the ranks and exits with code 130', async () => {
    const run = new Run(['--nproc', '4', 'wait.mjs'])
    const ranks = await run.announced(4)
    const pressed = now()
    run.signal('SIGINT')
    const { code, stderr, at } = await run.finished
    expect(code).toBe(130)
    expect(at - pressed).toBeLessThan(LIMIT)
    expect(stderr).toBe(
      'tsrun: Ctrl-C: stopping the ranks (SIGKILL after 10 s; Ctrl-C again: kill them now)\n',
    )
    await untilGone(pidsOf(ranks), LIMIT)
  })

  it('once gives ranks time to clean up', async () => {
    const run = new Run(['--nproc', '2', 'tidy.mjs'])
    await run.announced(2)
    run.signal('SIGINT')
    const { code, stdout } = await run.finished
    expect(code).toBe(130)
    expect(stdout.match(/saved/g)).toHaveLength(2)
  })

  it('twice kills the ranks at once', async () => {
    const run = new Run(['--nproc', '2', '--grace', '600', 'deaf.mjs'])
    const ranks = await run.announced(2)
    run.signal('SIGINT')
    await until(() => run.stdout.match(/not now/g)?.length === 2, 'both ranks refuse')
    const again = setInterval(() => {
      run.signal('SIGINT')
    }, 50)
    await until(
      () => run.stderr.includes('tsrun: killing the ranks now\n'),
      'the second has arrived',
    )
    clearInterval(again)
    expect((await run.finished).code).toBe(130)
    await untilGone(pidsOf(ranks), LIMIT)
  })

  it('counts once if npx forwards it', async () => {
    const run = new Run(['--nproc', '2', 'tidy.mjs'])
    await run.announced(2)
    run.signal('SIGINT')
    run.signal('SIGINT')
    const { code, stdout, stderr } = await run.finished
    expect(code).toBe(130)
    expect(stderr).not.toContain('killing')
    expect(stdout.match(/saved/g)).toHaveLength(2)
  })

  it('also stops a rank whose main thread is blocked', async () => {
    const run = new Run(['--nproc', '2', 'blocked.mjs'])
    const ranks = await run.announced(2)
    const pressed = now()
    run.signal('SIGINT')
    expect((await run.finished).at - pressed).toBeLessThan(LIMIT)
    await untilGone(pidsOf(ranks), LIMIT)
  })

  it('does not restart the ranks', async () => {
    const run = new Run(['--nproc', '2', '--max-restarts', '5', 'wait.mjs'])
    await run.announced(2)
    run.signal('SIGINT')
    const { code, stdout } = await run.finished
    expect(code).toBe(130)
    expect(stdout.match(/ready/g)).toHaveLength(2)
  })
})

it.each([
  ['SIGTERM', 143, []],
  ['SIGQUIT', 131, []],
  ['SIGHUP', 129, ['--signals-to-handle', 'SIGHUP']],
  ['SIGUSR1', 138, ['--signals-to-handle', 'SIGUSR1']],
] as const)('%s stops the job with exit code %d', async (signal, expected, flags) => {
  const run = new Run([...flags, '--nproc', '2', 'wait.mjs'])
  const ranks = await run.announced(2)
  run.signal(signal)
  const { code, stderr } = await run.finished
  expect(code).toBe(expected)
  expect(stderr).toContain(`tsrun: ${signal}: stopping the ranks`)
  await untilGone(pidsOf(ranks), LIMIT)
})

it.each([
  ['SIGHUP', 129],
  ['SIGTERM', 143],
] as const)('%s of tsrun hosts stops the job on a host', async (signal, expected) => {
  const run = new Run(['wait.mjs'], { env: { TSRUN_PARENT_PIPE: '1' }, stdin: 'pipe' })
  const ranks = await run.announced(1)
  run.child.stdin!.write(`${signal}\n`)
  expect((await run.finished).code).toBe(expected)
  await untilGone(pidsOf(ranks), LIMIT)
})

it.each([
  ['SIGUSR1 does not open the debugger of the launcher', [], 'SIGUSR1', 'SIGTERM', 143],
  ['SIGHUP does not stop a job without a terminal', [], 'SIGHUP', 'SIGTERM', 143],
  [
    'a signal that is not handled is ignored',
    ['--signals-to-handle', 'SIGQUIT'],
    'SIGTERM',
    'SIGQUIT',
    131,
  ],
] as const)('%s', async (_, flags, ignored, stopping, expected) => {
  const run = new Run([...flags, 'wait.mjs'])
  await run.announced(1)
  run.signal(ignored)
  await pause(200)
  expect(run.child.exitCode).toBeNull()
  run.signal(stopping)
  const { code, stderr } = await run.finished
  expect(code).toBe(expected)
  expect(stderr).toBe(`tsrun: ${stopping}: stopping the ranks (SIGKILL after 10 s)\n`)
})

it('SIGTERM to all processes of a job is no failure of a rank', async () => {
  const run = new Run(['--nproc', '2', 'wait.mjs'])
  const pids = pidsOf(await run.announced(2))
  for (const pid of pids) process.kill(pid, 'SIGTERM')
  run.signal('SIGTERM')
  const { code, stderr } = await run.finished
  expect({ code, stderr }).toEqual({
    code: 143,
    stderr: 'tsrun: SIGTERM: stopping the ranks (SIGKILL after 10 s)\n',
  })
})

it('SIGUSR1 does not open the debugger of a rank', async () => {
  const run = new Run(['wait.mjs'])
  const [rank] = await run.announced(1)
  process.kill(rank!.pid, 'SIGUSR1')
  await pause(200)
  run.signal('SIGTERM')
  const { code, stderr } = await run.finished
  expect(code).toBe(143)
  expect(stderr).toBe('tsrun: SIGTERM: stopping the ranks (SIGKILL after 10 s)\n')
})

it('Ctrl-Z stops the ranks too, and fg resumes them', async () => {
  const run = new Run(['--nproc', '2', 'wait.mjs'])
  const ranks = await run.announced(2)
  const everybody = [run.pid, ...pidsOf(ranks)]
  run.signal('SIGTSTP')
  await until(() => everybody.every((pid) => processState(pid) === 'T'), 'all are stopped')
  run.signal('SIGCONT')
  await until(() => everybody.every((pid) => processState(pid) !== 'T'), 'all run again')
  run.signal('SIGINT')
  expect((await run.finished).code).toBe(130)
})

it('a rank that is suspended by SIGSTOP does not keep the job from ending', async () => {
  const run = new Run(['--nproc', '2', 'wait.mjs'])
  const ranks = await run.announced(2)
  process.kill(ranks[0]!.pid, 'SIGSTOP')
  await until(() => processState(ranks[0]!.pid) === 'T', 'the rank is stopped')
  const pressed = now()
  run.signal('SIGINT')
  expect((await run.finished).at - pressed).toBeLessThan(LIMIT)
  await untilGone(pidsOf(ranks), LIMIT)
})

describe('a rank ends when its launcher is killed by SIGKILL', () => {
  it.each([
    ['while it waits', 'wait.mjs', {}],
    ['while its main thread is blocked', 'blocked.mjs', {}],
    ['even if it ignores SIGTERM', 'deaf.mjs', {}],
    ['without native bindings', 'wait.mjs', { TSRUN_NATIVE: 'off' }],
    ['without native bindings, while blocked', 'blocked.mjs', { TSRUN_NATIVE: 'off' }],
  ])('%s', async (_, script, env) => {
    const run = new Run(['--nproc', '4', script], { env })
    const ranks = await run.announced(4)
    run.signal('SIGKILL')
    await untilGone(pidsOf(ranks), LIMIT)
    expect((await run.finished).signal).toBe('SIGKILL')
  })

  it('while it starts', async () => {
    const run = new Run(['--nproc', '4', 'wait.mjs'])
    const file = `/proc/${run.pid}/task/${run.pid}/children`
    const children = (): number[] =>
      readFileSync(file, 'utf8').trim().split(' ').filter(Boolean).map(Number)
    await until(() => children().length >= 2, 'the first ranks are started')
    const ranks = children()
    run.signal('SIGKILL')
    await untilGone(ranks, LIMIT)
  })
})
