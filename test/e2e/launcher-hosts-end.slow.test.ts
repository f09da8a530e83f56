import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { allFinished, allReady, collecting, node } from '../launcher/support/nodes.ts'
import { killLeftovers, now, tsrun, until, untilGone } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

/** The figure of the project: a failure ends the job on every host within so many ms. */
const LIMIT = 2000

/** The line with which other nodes than node 0 point to the report. */
const pointer = (what: string): RegExp =>
  new RegExp(`^tsrun: the job failed: ${what}; the report is on node 0 \\(.+\\)$`, 'm')

describe('all hosts of a job end together', () => {
  it('after a rank fails, with one report and the same exit code', async () => {
    const args = ['--nproc', '2', '--no-summary', 'die.mjs', 'exit']
    const runs = [node(0, 2, args), node(1, 2, args)]
    const ends = await allFinished(runs)
    expect(ends[0]!.stderr).toContain('first cause  rank 1 of 4')
    expect(ends[1]!.stderr).not.toContain('first cause')
    expect(ends[1]!.stderr).toMatch(pointer('rank 1 of 4 on .+ called process.exit\\(3\\)'))
    expect(ends[0]!.code).toBe(ends[1]!.code)
    expect(ends[0]!.code).toBeGreaterThan(0)
    expect(Math.abs(ends[0]!.at - ends[1]!.at)).toBeLessThan(LIMIT)
  })

  it.each([0, 1, 2])('after a rank of node %d is killed', async (culprit) => {
    const runs = [0, 1, 2].map((rank) =>
      node(rank, 3, ['--nproc', '2', '--no-summary', 'wait.mjs']),
    )
    const ranks = await allReady(runs, [2, 2, 2])
    const killed = now()
    process.kill(ranks[2 * culprit]!.pid, 'SIGKILL')
    const ends = await allFinished(runs)
    for (const { code, at } of ends) {
      expect(code).toBe(137)
      expect(at - killed).toBeLessThan(LIMIT)
    }
    const [zero, ...others] = ends.map(({ stderr }) => stderr)
    expect(zero).toContain(`first cause  rank ${2 * culprit} of 6 was killed by SIGKILL`)
    for (const stderr of others) {
      expect(stderr).toMatch(pointer(`rank ${2 * culprit} of 6 on .+ was killed by SIGKILL`))
    }
    await untilGone(
      ranks.map(({ pid }) => pid),
      LIMIT,
    )
  })

  it.each([0, 1])('after the launcher of node %d is killed', async (victim) => {
    const runs = [0, 1, 2].map((rank) =>
      node(rank, 3, ['--nproc', '2', '--no-summary', 'wait.mjs']),
    )
    const ranks = await allReady(runs, [2, 2, 2])
    const killed = now()
    runs[victim]!.signal('SIGKILL')
    const others = await allFinished(runs.filter((_, i) => i !== victim))
    const which = `ranks ${2 * victim}-${2 * victim + 1}`
    others.forEach(({ code, stderr, at }, i) => {
      expect(code).toBe(75)
      expect(at - killed).toBeLessThan(LIMIT + 3000)
      // Without node 0 every other node gives an account of its own.
      if (victim === 0 || i === 0) {
        expect(stderr).toContain(
          `first cause  node ${victim} (${which}) is gone: its launcher has ended`,
        )
      } else {
        const gone = `node ${victim} \\(.+, ${which}\\) is gone: its launcher has ended`
        expect(stderr).toMatch(pointer(gone))
      }
    })
    await untilGone(
      ranks.map(({ pid }) => pid),
      LIMIT,
    )
  })

  it.each([0, 1])('after Ctrl-C on node %d', async (pressed) => {
    const runs = [0, 1].map((rank) => node(rank, 2, ['--nproc', '2', 'wait.mjs']))
    const ranks = await allReady(runs, [2, 2])
    const at = now()
    runs[pressed]!.signal('SIGINT')
    const ends = await allFinished(runs)
    expect(ends.map(({ code }) => code)).toEqual([130, 130])
    for (const end of ends) expect(end.at - at).toBeLessThan(LIMIT)
    expect(ends[pressed]!.stderr).toContain('tsrun: Ctrl-C: stopping the ranks')
    expect(ends[1 - pressed]!.stderr).toContain(`tsrun: Ctrl-C on node ${pressed} (`)
    await untilGone(
      ranks.map(({ pid }) => pid),
      LIMIT,
    )
  })

  it('at once after a second Ctrl-C, which kills the ranks of all hosts', async () => {
    const runs = [0, 1].map((rank) => node(rank, 2, ['--nproc', '2', '--grace', '600', 'deaf.mjs']))
    const ranks = await allReady(runs, [2, 2])
    runs[1]!.signal('SIGINT')
    await until(() => runs.every((run) => run.stdout.match(/not now/g)?.length === 2), 'all refuse')
    const again = setInterval(() => {
      runs[1]!.signal('SIGINT')
    }, 50)
    const ends = await allFinished(runs)
    clearInterval(again)
    expect(ends.map(({ code }) => code)).toEqual([130, 130])
    await untilGone(
      ranks.map(({ pid }) => pid),
      LIMIT,
    )
  })

  it('after --max-restarts restarts in total, and the ranks know their number', async () => {
    const args = ['--nproc', '2', '--no-summary', '--max-restarts', '3', 'flaky.mjs', '2']
    const ends = await allFinished([node(0, 2, args), node(1, 2, args)])
    expect(ends.map(({ code }) => code)).toEqual([0, 0])
    for (const { stderr } of ends) {
      expect(stderr).toContain('starting all ranks again (restart 1 of 3)')
      expect(stderr).toContain('starting all ranks again (restart 2 of 3)')
      expect(stderr).not.toContain('restart 3 of 3')
    }
    const spent = await allFinished(
      [0, 1].map((rank) => node(rank, 2, [...args.slice(0, -1), '9'])),
    )
    expect(spent.map(({ code }) => code)).toEqual([spent[0]!.code, spent[0]!.code])
    expect(spent[0]!.code).toBeGreaterThan(0)
  })

  it('after --max-restarts restarts even if the launchers collect garbage', async () => {
    const args = ['--nproc', '2', '--no-summary', '--max-restarts', '1', 'flaky.mjs', '1']
    const ends = await allFinished([0, 1].map((rank) => node(rank, 2, args, collecting)))
    expect(ends.map(({ code }) => code)).toEqual([0, 0])
  })

  it('and name a rank that left early on another host', async () => {
    const ends = await allFinished(
      [0, 1].map((rank) => node(rank, 2, ['--no-summary', '../distributed/early-leave.mjs'])),
    )
    for (const { code } of ends) expect(code).toBeGreaterThan(0)
    expect(ends[0]!.stderr).toContain('first cause  rank 1 of 2 left the job early')
    expect(ends[1]!.stderr).toMatch(pointer('rank 1 of 2 on .+ left the job early.*'))
  })
})

describe('node 0 reports on the ranks of all hosts', () => {
  const cwd = fileURLToPath(new URL('../fixtures/ranks/', import.meta.url))
  let TMPDIR = ''
  beforeEach(() => (TMPDIR = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
  afterEach(() => {
    rmSync(TMPDIR, { recursive: true, force: true })
  })

  /** What the nodes of a job say. Each has two ranks; rank 2 is the culprit. */
  const run = async (program: readonly string[]): Promise<[string, string]> => {
    const args = ['--nproc', '2', '--grace', '0.3', ...program]
    const options = { cwd, env: { TMPDIR, TIMEOUT: '500' } }
    const ends = await allFinished([0, 1].map((rank) => node(rank, 2, args, options)))
    const [zero, one] = ends.map(({ stderr }) => stderr.replaceAll(/\n {13}/g, ' ')) as [
      string,
      string,
    ]
    return [zero, one]
  }

  it('and names a rank of another host that never entered a collective, with all records', async () => {
    const [zero, one] = await run(['never-enters.mjs'])
    const what =
      'never entered allReduce #5 (ddp bucket 3: layer4.weight) of group world, in which ranks ' +
      '0-1, 3 waited 0.50 s'
    expect(zero).toContain(`first cause  rank 2 of 4 ${what}`)
    expect(one).toMatch(/^tsrun: the job failed: rank 2 of 4 on .+ never entered allReduce #5/m)
    expect(one).not.toContain('── tsrun')
    const [, folder] = /^records +tsrun flight (.+)$/m.exec(zero)!
    const { stdout } = await tsrun(['flight', folder!])
    expect(stdout).toContain('records of 4 of 4 ranks')
    expect(stdout).toContain('waiting for it: 0-1, 3')
    // The other host keeps nothing.
    expect(readdirSync(TMPDIR).filter((name) => name.startsWith('tsrun-flight-'))).toHaveLength(1)
  })

  it('and names a rank of another host that called a different collective', async () => {
    const [zero] = await run(['mismatch.mjs', 'last'])
    expect(zero).toMatch(/^first cause {2}rank 2 of 4/m)
    expect(zero).toMatch(/ranks 0-1, 3 ran allReduce.*; rank 2 ran broadcast/)
  })

  it('and its summary has the ranks of all hosts', async () => {
    const [zero, one] = await run(['--summary', '../launcher/hello.mjs'])
    expect(zero.match(/^ +[0-3] +\S+ +[\d.]+ s /gm)).toHaveLength(4)
    expect(one).not.toContain('peak memory')
  })
})
