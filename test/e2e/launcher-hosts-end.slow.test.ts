import { jest } from '@jest/globals'
import { allFinished, allReady, collecting, node } from '../launcher/support/nodes.ts'
import { killLeftovers, now, until, untilGone } from '../launcher/support/tsrun.ts'

jest.setTimeout(60_000)
afterEach(killLeftovers)

/** The figure of the project: a failure ends the job on every host within so many ms. */
const LIMIT = 2000

/** The failure report, without what differs from run to run. */
function reportIn(stderr: string): string {
  return stderr.slice(stderr.indexOf('── tsrun'))
}

describe('one end for all', () => {
  it('a rank that fails ends the job everywhere, with the same report and exit code', async () => {
    const args = ['--nproc', '2', '--no-summary', 'die.mjs', 'exit']
    const runs = [node(0, 2, args), node(1, 2, args)]
    const ends = await allFinished(runs)
    const reports = ends.map(({ stderr }) => reportIn(stderr))
    expect(reports[0]).toContain('first cause  rank 1 of 4')
    expect(reports[1]).toBe(reports[0])
    expect(ends[0]!.code).toBe(ends[1]!.code)
    expect(ends[0]!.code).toBeGreaterThan(0)
    expect(Math.abs(ends[0]!.at - ends[1]!.at)).toBeLessThan(LIMIT)
  })

  it.each([0, 1, 2])('a rank of node %d that is killed', async (culprit) => {
    const runs = [0, 1, 2].map((rank) =>
      node(rank, 3, ['--nproc', '2', '--no-summary', 'wait.mjs']),
    )
    const ranks = await allReady(runs, [2, 2, 2])
    const killed = now()
    process.kill(ranks[2 * culprit]!.pid, 'SIGKILL')
    const ends = await allFinished(runs)
    for (const { code, stderr, at } of ends) {
      expect(code).toBe(137)
      expect(reportIn(stderr)).toBe(reportIn(ends[0]!.stderr))
      expect(stderr).toContain(`rank ${2 * culprit} of 6 was killed by SIGKILL`)
      expect(at - killed).toBeLessThan(LIMIT)
    }
    await untilGone(
      ranks.map(({ pid }) => pid),
      LIMIT,
    )
  })

  it.each([0, 1])('the launcher of node %d is killed', async (victim) => {
    const runs = [0, 1, 2].map((rank) =>
      node(rank, 3, ['--nproc', '2', '--no-summary', 'wait.mjs']),
    )
    const ranks = await allReady(runs, [2, 2, 2])
    const killed = now()
    runs[victim]!.signal('SIGKILL')
    const others = await allFinished(runs.filter((_, i) => i !== victim))
    for (const { code, stderr, at } of others) {
      expect(code).toBe(1)
      const which = `ranks ${2 * victim}-${2 * victim + 1}`
      expect(stderr).toContain(
        `first cause  node ${victim} (${which}) is gone: its launcher has ended`,
      )
      expect(at - killed).toBeLessThan(LIMIT + 3000)
    }
    await untilGone(
      ranks.map(({ pid }) => pid),
      LIMIT,
    )
  })

  it.each([0, 1])('Ctrl-C on node %d', async (pressed) => {
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

  it('a second Ctrl-C kills on all hosts', async () => {
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

  it('--max-restarts is one budget for all, and the ranks know how often', async () => {
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

  it('the same while the launchers collect garbage', async () => {
    const args = ['--nproc', '2', '--no-summary', '--max-restarts', '1', 'flaky.mjs', '1']
    const ends = await allFinished([0, 1].map((rank) => node(rank, 2, args, collecting)))
    expect(ends.map(({ code }) => code)).toEqual([0, 0])
  })

  it('a rank that left early on one host is named when another host misses it', async () => {
    const ends = await allFinished(
      [0, 1].map((rank) => node(rank, 2, ['--no-summary', '../distributed/early-leave.mjs'])),
    )
    for (const { code, stderr } of ends) {
      expect(code).toBeGreaterThan(0)
      expect(reportIn(stderr)).toBe(reportIn(ends[0]!.stderr))
      expect(stderr).toContain('first cause  rank 1 of 2 left the job early')
    }
  })
})
