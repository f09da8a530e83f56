import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
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

onHosts.each([0, 2])('all hosts name the rank of host %d that was killed', async (culprit) => {
  const cluster = new Cluster(3)
  const runs = await start(cluster, 3)
  const [first] = ranksOf(runs[culprit]!)
  const killed = performance.now()
  process.kill(first!.pid, 'SIGKILL')
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  for (const { code, at } of ends) {
    expect(code).toBe(137)
    expect(at - killed).toBeLessThan(LIMIT)
  }
  const [zero, ...others] = ends.map(({ stderr }) => stderr)
  expect(zero).toContain(`first cause  rank ${first!.rank} of 6 was killed by SIGKILL`)
  expect(zero).toContain(`process      ${first!.pid} on n${culprit}`)
  for (const stderr of others) {
    expect(stderr).toContain(
      `tsrun: the job failed: rank ${first!.rank} of 6 on n${culprit} was killed by SIGKILL; ` +
        'the report is on node 0 (n0)',
    )
  }
  await untilGone(pidsOf(runs))
})

onHosts.each([1, 0])('all hosts name a lost node and end if host %d is cut off', async (host) => {
  const cluster = new Cluster(3)
  const runs = await start(cluster, 3, ['--host-timeout', '4'])
  cluster.cut(host)
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  expect(ends.map(({ code }) => code)).toEqual([75, 75, 75])
  const lost = (node: number): string =>
    `first cause  node ${node} (ranks ${2 * node}-${2 * node + 1}) is gone: `
  ends.forEach(({ stderr }, i) => {
    // Who cannot reach node 0 any more knows no more than that.
    const expected = host === 1 && i !== 1 ? lost(1) : host === 1 ? lost(0) : undefined
    const isPointer = host === 1 && i === 2
    if (expected !== undefined && !isPointer) expect(stderr).toContain(expected)
    if (isPointer) expect(stderr).toContain('node 1 (n1, ranks 2-3) is gone: it was silent for 4 s')
    expect(stderr).toMatch(/is gone: (it was silent|it did not answer) for 4 s/)
  })
  await untilGone(pidsOf(runs))
})

onHosts('a job continues if a host is reconnected before the host timeout', async () => {
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

onHosts('a host whose launcher is killed is reported within 2 s', async () => {
  const cluster = new Cluster(2)
  const runs = await start(cluster, 2)
  const pids = pidsOf(runs)
  const killed = performance.now()
  runs[1]!.child.kill('SIGKILL')
  const { code, stderr, at } = await runs[0]!.finished
  expect(code).toBe(75)
  expect(stderr).toContain('first cause  node 1 (ranks 2-3) is gone: its launcher has ended')
  expect(stderr).toContain('host         n1, 10.99.0.2')
  expect(at - killed).toBeLessThan(LIMIT)
  await untilGone(pids)
})

onHosts(
  'node 0 names a rank of another host that never entered a collective, and its last operation',
  async () => {
    const cluster = new Cluster(3)
    const logs = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
    try {
      const flags = ['--nproc', '1', '--grace', '0.3', '--no-summary', '--log-dir']
      const runs = [0, 1, 2].map((i) =>
        cluster.tsrun(i, 3, [
          ...flags,
          join(logs, `n${i}`),
          'test/fixtures/ranks/never-enters.mjs',
        ]),
      )
      const ends = await Promise.all(runs.map(({ finished }) => finished))
      const [zero, one, two] = ends.map(({ stderr }) => stderr.replaceAll(/\s+/g, ' '))
      const what = 'never entered allReduce #5 (ddp bucket 3: layer4.weight) of group world'
      expect(zero).toContain(`first cause rank 2 of 3 ${what}, in which ranks 0-1 waited`)
      expect(zero).toContain(' on n2 last Its last operation was allReduce(sum) float32[1024]')
      for (const other of [one, two]) {
        expect(other).toContain(`tsrun: the job failed: rank 2 of 3 on n2 ${what}`)
        expect(other).toContain('the report is on node 0 (n0)')
      }
      // The files of the hosts are apart, and host 0 has the records of all.
      const [run] = readdirSync(join(logs, 'n0'))
      const names = readdirSync(join(logs, 'n0', run!, 'attempt_0', 'flight'))
      expect(names.sort()).toEqual(['rank-0.jsonl', 'rank-1.jsonl', 'rank-2.jsonl'])
      const own = readdirSync(join(logs, 'n2', run!, 'attempt_0', 'flight'))
      expect(own).toEqual(['rank-2.jsonl'])
    } finally {
      rmSync(logs, { recursive: true, force: true })
    }
  },
)

onHosts('Ctrl-C on one host ends the job on all hosts', async () => {
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

onHosts('all ranks of all hosts restart after a failure', async () => {
  const cluster = new Cluster(2)
  const args = ['--max-restarts', '2', 'test/fixtures/launcher/flaky.mjs', '1']
  const runs = [0, 1].map((i) => cluster.tsrun(i, 2, args))
  for (const { code, stdout, stderr } of await Promise.all(runs.map(({ finished }) => finished))) {
    expect(code).toBe(0)
    expect(stdout).toContain('in attempt 1')
    expect(stderr).toContain('starting all ranks again (restart 1 of 2)')
  }
})
