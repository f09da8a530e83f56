import { jest } from '@jest/globals'
import { announcements, until, untilGone, type RankLine } from '../launcher/support/tsrun.ts'
import { Cluster, endClusters, type HostRun, onHosts } from './support/cluster.ts'

jest.setTimeout(120_000)

/** The figure of the project: a failure ends the job on every host within so many ms. */
const LIMIT = 2000

afterEach(endClusters)

/** A job that trains on the hosts; each rank says its process number. */
async function start(
  on: Cluster,
  hosts: number,
  flags: readonly string[] = [],
): Promise<HostRun[]> {
  const script = 'test/fixtures/distributed/forever.mjs'
  const runs = Array.from({ length: hosts }, (_, i) =>
    on.tsrun(i, hosts, ['--nproc', '2', ...flags, script]),
  )
  await until(() => runs.every((run) => ranksOf(run, 'working').length === 2), 'all work', 60_000)
  return runs
}

function ranksOf({ stdout }: HostRun, word = 'ready'): RankLine[] {
  return announcements(stdout, word)
}

const pidsOf = (runs: readonly HostRun[]): number[] =>
  runs.flatMap((run) => ranksOf(run).map(({ pid }) => pid))

function reportIn(stderr: string): string {
  return stderr.slice(stderr.indexOf('── tsrun'))
}

onHosts.each([0, 2])('a rank of host %d is killed: one cause for all', async (culprit) => {
  const cluster = new Cluster(3)
  const runs = await start(cluster, 3)
  const [first] = ranksOf(runs[culprit]!)
  const killed = performance.now()
  process.kill(first!.pid, 'SIGKILL')
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  for (const { code, stderr, at } of ends) {
    expect(code).toBe(137)
    expect(at - killed).toBeLessThan(LIMIT)
    expect(reportIn(stderr)).toBe(reportIn(ends[0]!.stderr))
    expect(stderr).toContain(`first cause  rank ${first!.rank} of 6 was killed by SIGKILL`)
    expect(stderr).toContain(`process      ${first!.pid} on n${culprit}`)
  }
  await untilGone(pidsOf(runs))
})

onHosts.each([1, 0])('the cable of host %d is pulled: both sides say so and stop', async (host) => {
  const cluster = new Cluster(3)
  const runs = await start(cluster, 3, ['--host-timeout', '4'])
  cluster.cut(host)
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  expect(ends.map(({ code }) => code)).toEqual([1, 1, 1])
  const lost = (node: number): string =>
    `first cause  node ${node} (ranks ${2 * node}-${2 * node + 1}) is gone: `
  ends.forEach(({ stderr }, i) => {
    // Who cannot reach node 0 any more knows no more than that.
    const expected = host === 1 && i !== 1 ? lost(1) : host === 1 ? lost(0) : undefined
    if (expected !== undefined) expect(stderr).toContain(expected)
    expect(stderr).toMatch(/is gone: (it was silent|it did not answer) for 4 s/)
  })
  await untilGone(pidsOf(runs))
})

onHosts('a cable that is put back in time is as if nothing had happened', async () => {
  const cluster = new Cluster(2)
  const runs = await start(cluster, 2)
  cluster.cut(1)
  await runs[0]!.says(/node 1 \(n1\) has been silent for 5 s; the job fails after 30 s/)
  cluster.mend(1)
  await runs[0]!.says(/node 1 \(n1\) is back after \d+ s of silence/)
  runs[0]!.child.kill('SIGINT')
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  expect(ends.map(({ code }) => code)).toEqual([130, 130])
  for (const { stderr } of ends) expect(stderr).not.toContain('the job failed')
})

onHosts('a host that is gone for good, launcher and ranks at once', async () => {
  const cluster = new Cluster(2)
  const runs = await start(cluster, 2)
  const pids = pidsOf(runs)
  const killed = performance.now()
  runs[1]!.child.kill('SIGKILL')
  const { code, stderr, at } = await runs[0]!.finished
  expect(code).toBe(1)
  expect(stderr).toContain('first cause  node 1 (ranks 2-3) is gone: its launcher has ended')
  expect(stderr).toContain('host         n1, 10.99.0.2')
  expect(at - killed).toBeLessThan(LIMIT)
  await untilGone(pids)
})

onHosts('Ctrl-C on one host ends the job on all', async () => {
  const cluster = new Cluster(2)
  const runs = await start(cluster, 2)
  const pressed = performance.now()
  runs[1]!.child.kill('SIGINT')
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  for (const { code, at } of ends) {
    expect(code).toBe(130)
    expect(at - pressed).toBeLessThan(LIMIT)
  }
  expect(ends[0]!.stderr).toContain('tsrun: Ctrl-C on node 1 (n1): stopping the ranks')
  await untilGone(pidsOf(runs))
})

onHosts('all ranks of all hosts start again after a failure', async () => {
  const cluster = new Cluster(2)
  const args = ['--max-restarts', '2', 'test/fixtures/launcher/flaky.mjs', '1']
  const runs = [0, 1].map((i) => cluster.tsrun(i, 2, args))
  for (const { code, stdout, stderr } of await Promise.all(runs.map(({ finished }) => finished))) {
    expect(code).toBe(0)
    expect(stdout).toContain('in attempt 1')
    expect(stderr).toContain('starting all ranks again (restart 1 of 2)')
  }
})
