import { jest } from '@jest/globals'
import { Cluster, endClusters, onHosts } from './support/cluster.ts'

jest.setTimeout(240_000)

afterEach(endClusters)

interface Said {
  readonly transports: string[]
  readonly hierarchical: number
  readonly doubling: number
  readonly bytes: number
}

onHosts('collectives use shared memory in a host and send few bytes between hosts', async () => {
  const cluster = new Cluster(3)
  const ranks = [2, 1, 2]
  const script = 'test/fixtures/distributed/over-hosts.mjs'
  const runs = ranks.map((nproc, i) =>
    cluster.tsrun(i, ranks.length, ['--nproc', String(nproc), script]),
  )
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  for (const { code, stderr } of ends) expect({ code, stderr }).toEqual({ code: 0, stderr })
  const line = ends[0]!.stdout.split('\n').find((text) => text.includes('{"transports"'))
  const said = JSON.parse(line!.slice(line!.indexOf('{'))) as Said
  expect(said.transports).toEqual(['shared-memory', 'tcp', 'tcp', 'tcp'])
  // One owner a host: halving and doubling of three hosts; two of them pair up before.
  expect(said.hierarchical).toBeLessThan(4.1 * said.bytes)
  expect(said.hierarchical).toBeLessThan(said.doubling)
})
