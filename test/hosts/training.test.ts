import { jest } from '@jest/globals'
import { Cluster, endClusters, lossesOf, onHosts, root } from './support/cluster.ts'
import { Run } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)

/** Few and large steps: the traffic, not the arithmetic, is what counts here. */
const network = ['examples/pipeline.ts', '--width', '128', '--epochs', '1']
const training = [...network, '--batch', '2048', '--images', '20480']

afterEach(endClusters)

const known = new Map<string, Promise<string[]>>()

/** The figures of one host with so many ranks, which runs once. */
function onOneHost(nproc: number, command = training): Promise<string[]> {
  const key = [nproc, ...command].join(' ')
  const losses = known.get(key) ?? trainHere(nproc, command)
  known.set(key, losses)
  return losses
}

async function trainHere(nproc: number, command: readonly string[]): Promise<string[]> {
  const run = new Run(['--nproc', String(nproc), ...command], { cwd: root })
  const { code, stdout, stderr } = await run.finished
  expect({ code, stderr }).toEqual({ code: 0, stderr })
  return lossesOf(stdout + stderr)
}

async function onSeveral(
  on: Cluster,
  ranks: readonly number[],
  flags: readonly string[] = [],
): Promise<string[]> {
  const runs = ranks.map((nproc, i) =>
    on.tsrun(i, ranks.length, ['--nproc', String(nproc), ...flags, ...training]),
  )
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  for (const { code, stderr } of ends) expect({ code, stderr }).toEqual({ code: 0, stderr })
  return lossesOf(ends[0]!.stdout + ends[0]!.stderr)
}

onHosts('two hosts with two ranks each train to the same losses as one host', async () => {
  const cluster = new Cluster(2)
  const losses = await onSeveral(cluster, [2, 2])
  expect(losses).toHaveLength(1)
  expect(losses).toEqual(await onOneHost(4))
})

onHosts('two hosts train to the same losses as one with --tls over a slow link', async () => {
  const cluster = new Cluster(2)
  await cluster.relay(1, 'delay', '50')
  expect(await onSeveral(cluster, [2, 2], ['--tls'])).toEqual(await onOneHost(4))
})

onHosts('three hosts with unequal ranks and a slow link train to the same losses', async () => {
  const cluster = new Cluster(3)
  const expected = await onOneHost(4)
  await cluster.relay(2, 'delay', '50')
  expect(await onSeveral(cluster, [1, 2, 1])).toEqual(expected)
})

onHosts('a link that drops 1 % of its frames does not change the training losses', async () => {
  const cluster = new Cluster(2)
  await cluster.relay(1, 'loss', '0.01')
  expect(await onSeveral(cluster, [1, 1])).toEqual(await onOneHost(2))
})

onHosts('a job continues with the same losses after a link has stalled', async () => {
  const cluster = new Cluster(2)
  const change = await cluster.relay(1)
  const longer = [...network, '--batch', '256']
  const runs = [0, 1].map((i) => cluster.tsrun(i, 2, longer))
  await runs[0]!.says(/step \d+\/235 /)
  change('stall')
  // Long enough to be noticed and mentioned, by the launchers that miss each other.
  await runs[0]!.says(/node 1 \(n1\) has been silent for 5 s; the job fails after 30 s/)
  change('go')
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  expect(ends.map(({ code }) => code)).toEqual([0, 0])
  expect(ends[0]!.stderr).toContain('node 1 (n1) is back')
  expect(lossesOf(ends[0]!.stdout + ends[0]!.stderr)).toEqual(await onOneHost(2, longer))
})
