import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  announcements,
  killLeftovers,
  Run,
  tsrun,
  untilGone,
  type Finished,
  type RankLine,
} from '../launcher/support/tsrun.ts'
import { describeDeaths, usualDeaths } from './support/deaths.ts'

afterEach(killLeftovers)

describeDeaths(usualDeaths)

/** The part of the report that names the cause. */
function firstCause({ stderr }: Finished): string | undefined {
  const unfolded = stderr.replaceAll(/\n {13}/g, ' ')
  return /first cause {2}(.*), after [\d.]+ s$/m.exec(unfolded)?.[1]
}

describe('the report on culprits and victims', () => {
  const start = async (story: string): Promise<{ run: Run; ranks: RankLine[] }> => {
    const run = new Run(['--nproc', '4', 'victims.mjs', story])
    return { run, ranks: await run.announced(4) }
  }
  const isCulprit = (rank: number): boolean => rank === 2
  const isVictim = (rank: number): boolean => rank !== 2

  it('names a culprit that dies after the peers that lost it, whose errors are only in their log files', async () => {
    const logs = mkdtempSync(join(tmpdir(), 'tsrun-victims-'))
    try {
      const run = new Run(['--nproc', '4', '--log-dir', logs, 'victims.mjs', 'late'])
      const ranks = await run.announced(4)
      run.ask(ranks, isVictim)
      await run.announced(3, 'asked')
      run.ask(ranks, isCulprit)
      const finished = await run.finished
      const { code, stderr } = finished
      expect(firstCause(finished)).toBe('rank 2 of 4 called process.exit(7)')
      expect(code).toBe(7)
      expect(stderr).toContain('ranks 0-1, 3: failed because of rank 2 (ERR_TSR_PEER_LOST), after')
      const [runId] = readdirSync(logs)
      for (const rank of [0, 1, 3]) {
        const lines = stderr.split('\n').filter((line) => line.startsWith(`[rank ${rank}]`))
        expect(lines).toEqual([])
        const log = readFileSync(join(logs, runId!, 'attempt_0', `${rank}`, 'stderr.log'), 'utf8')
        expect(log).toMatch(/Error: the step failed\n +at .*victims\.mjs/)
        expect(log).toContain('[cause]: TsrError: Rank 2 is gone')
      }
    } finally {
      rmSync(logs, { recursive: true })
    }
  })

  it('names a rank that left early with exit code 0, and the error of a peer that missed it', async () => {
    const { run, ranks } = await start('early')
    run.ask(ranks, isCulprit)
    await untilGone([ranks.find(({ rank }) => isCulprit(rank))!.pid])
    run.ask(ranks, isVictim)
    const finished = await run.finished
    expect(firstCause(finished)).toBe('rank 2 of 4 left the job early, with exit code 0')
    expect(finished.code).toBe(1)
    expect(finished.stderr).toContain('ERR_TSR_PEER_LEFT')
    expect(finished.stderr).toContain('uneven batches')
  })

  it('says that only errors caused by other ranks are known', async () => {
    const { run, ranks } = await start('elsewhere')
    run.ask(ranks)
    const finished = await run.finished
    expect(firstCause(finished)).toMatch(/^rank \d of 4 died of an uncaught error/)
    expect(finished.stderr).toContain('follows from the end of another rank')
  })

  it('ignores errors that the script survived', async () => {
    const { run, ranks } = await start('survived')
    run.ask(ranks, isVictim)
    await run.announced(3, 'survived')
    run.ask(ranks, isCulprit)
    const finished = await run.finished
    expect(firstCause(finished)).toBe('rank 2 of 4 called process.exit(7)')
    expect(finished.stderr).not.toContain('ERR_TSR_PEER_LOST')
  })
})

it('the launcher replaces control codes of ranks for the terminal', async () => {
  const { code, stdout, stderr } = await tsrun(['--nproc', '2', 'escapes.mjs'])
  expect(code).toBe(1)
  expect(stdout).toContain('␛[2Jcleared ␛]0;title␇ ab␈␈ red')
  expect(stderr).toContain('WARN engine: named ␛[2J')
  // the head and the tail of a message of 30 MB
  expect(stderr).toContain('Error: broken ␛[2Jxxx')
  expect(stderr).toMatch(/x the end$/m)
  expect(stderr).toContain('escapes.mjs:7')
  expect(stderr.length).toBeLessThan(100_000)

  expect(stdout + stderr).not.toMatch(/\u001b(?!\[[\d;]*m)|[\r\b\u0007]/)
})

it('the report shows the place of a syntax error, without frames of Node', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'tsrun-syntax-'))
  try {
    const script = join(directory, 'broken.mjs')
    writeFileSync(script, 'const broken = ;\n')
    const { code, stderr } = await tsrun(['--nproc', '3', script])
    expect(code).toBe(1)
    const report = stderr.slice(stderr.indexOf('── tsrun: the job failed'))
    expect(report).toMatch(/error +file:.*broken\.mjs:1\n +const broken = ;\n +\^/)
    expect(report).toContain("SyntaxError: Unexpected token ';'")
    expect(report).not.toContain('node:internal')
  } finally {
    rmSync(directory, { recursive: true })
  }
})

it('a promise rejected with a value that is no Error appears only in the report', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'tsrun-rejected-'))
  try {
    const script = join(directory, 'rejects.mjs')
    writeFileSync(script, "await Promise.reject('text only')\n")
    const { code, stderr } = await tsrun(['--nproc', '2', script])
    expect(code).toBe(1)
    expect(stderr).toMatch(/^── tsrun: the job failed/)
    expect(stderr).toMatch(/error +'text only'\n +This value is no Error/)
    expect(stderr).not.toContain('node:internal')
  } finally {
    rmSync(directory, { recursive: true })
  }
})

it('the report shows lines of the TypeScript source', async () => {
  const { code, stderr } = await tsrun(['--nproc', '2', 'typed-throws.ts'])
  expect(code).toBe(1)
  expect(stderr).toContain('RangeError: no area for 2 sides')
  expect(stderr).toMatch(/at area \(.*typed-throws\.ts:6:\d+\)/)
})

it('the report explains a top-level await that never settles', async () => {
  const { code, stderr } = await tsrun(['--nproc', '2', 'never.mjs'])
  expect(code).toBe(13)
  expect(stderr).toContain('top-level await that never settled')
})

it('with --log-format json, the report is an event with all facts', async () => {
  const { code, stdout } = await tsrun(['--nproc', '2', '--log-format', 'json', 'die.mjs', 'throw'])
  expect(code).toBe(1)
  const events = stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { event?: string })
  expect(events.find(({ event }) => event === 'failure')).toMatchObject({
    rank: 1,
    worldSize: 2,
    exitCode: 1,
    signal: null,
    error: expect.stringContaining('the loss is not a number'),
    stderr: ['a last word on stderr'],
    others: [expect.stringMatching(/^rank 0: stopped by tsrun/)],
    jobExitCode: 1,
  })
})

it('the launcher kills a rank that does not stop within the grace period, and says so', async () => {
  const run = new Run(['--nproc', '3', '--grace', '0.3', 'deaf.mjs', '2'])
  const ranks = await run.announced(3)
  process.kill(ranks.find(({ rank }) => rank === 0)!.pid, 'SIGKILL')
  const { code, stdout, stderr } = await run.finished
  expect(code).toBe(137)
  expect(stdout).toContain('[rank 2] not now')
  expect(stderr).toContain('tsrun: rank 2 did not stop within 0.3 s: SIGKILL\n')
  expect(stderr).toContain('rank 2: stopped by tsrun, with SIGKILL')
  await untilGone(ranks.map(({ pid }) => pid))
})

it.each(['well', 'throw'])(
  'no child process of a rank outlives the end of the job (%s)',
  async (end) => {
    const run = new Run(['--nproc', '2', 'family.mjs', end])
    const { code, stdout } = await run.finished
    expect(code).toBe(end === 'throw' ? 1 : 0)
    const children = Array.from(stdout.matchAll(/child rank=\d pid=(\d+)/g), ([, pid]) =>
      Number(pid),
    )
    expect(children.length).toBeGreaterThan(0)
    await untilGone(children, 200)
  },
)

it('the launcher says which rank could not start, and stops the others', async () => {
  const { code, stdout, stderr } = await tsrun(['--nproc', '64', 'wait.mjs'], { ulimit: '-n 120' })
  expect(code).toBe(75)
  expect(stderr).toMatch(/^tsrun: Rank \d+ of 64 could not be started: .*EMFILE.*\n$/)
  await untilGone(announcements(stdout).map(({ pid }) => pid))
})
