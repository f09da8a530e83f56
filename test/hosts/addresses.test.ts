import { jest } from '@jest/globals'
import { Cluster, endClusters, onHosts, token, type HostRun } from './support/cluster.ts'
import { until } from '../launcher/support/tsrun.ts'

jest.setTimeout(120_000)

afterEach(endClusters)

const listening = ['test/fixtures/distributed/addresses.mjs']

interface Rank {
  readonly rank: number
  readonly masterAddr: string
  /** Where the other ranks find this one. */
  readonly endpoint: { readonly host: string; readonly port: number }
}

/** What the ranks of a job on two hosts publish, with flags of its own for each host. */
async function publishedBy(
  on: Cluster,
  flags: readonly (readonly string[])[],
  env: NodeJS.ProcessEnv = {},
): Promise<Rank[]> {
  const runs = flags.map((own, i) =>
    on.tsrun(i, flags.length, ['--nproc', '2', '--log-format', 'raw', ...own, ...listening], env),
  )
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  for (const { code, stderr } of ends) expect({ code, stderr }).toEqual({ code: 0, stderr })
  return ends
    .flatMap(({ stdout }) => Array.from(stdout.matchAll(/^\{.*\}$/gm), ([json]) => json))
    .map((json) => JSON.parse(json) as Rank)
    .sort((a, b) => a.rank - b.rank)
}

onHosts('ranks publish their address towards the store, and MASTER_ADDR is node 0', async () => {
  const cluster = new Cluster(2)
  for (const transport of ['tcp', 'node']) {
    const ranks = await publishedBy(cluster, [[], []], { TSRUN_TRANSPORT: transport })
    expect(ranks.map(({ endpoint }) => endpoint.host)).toEqual([
      '10.99.0.1',
      '10.99.0.1',
      '10.99.0.2',
      '10.99.0.2',
    ])
    expect(new Set(ranks.map(({ masterAddr }) => masterAddr))).toEqual(new Set(['10.99.0.1']))
  }
})

onHosts('--iface takes a name or an address, and --port-range limits the ports', async () => {
  const cluster = new Cluster(2)
  const ranks = await publishedBy(cluster, [
    ['--iface', 'eth0', '--port-range', '31000-31001'],
    ['--iface', '10.99.0.2', '--port-range', '32000-32003'],
  ])
  expect(ranks.map(({ endpoint }) => endpoint.host)).toEqual([
    '10.99.0.1',
    '10.99.0.1',
    '10.99.0.2',
    '10.99.0.2',
  ])
  const ports = ranks.map(({ endpoint }) => endpoint.port)
  expect(ports.slice(0, 2).sort()).toEqual([31_000, 31_001])
  expect(ports.slice(2).sort()).toEqual([32_000, 32_001])
})

onHosts('--iface refuses an unknown interface and lists the existing ones', async () => {
  const cluster = new Cluster(2)
  const run = cluster.tsrun(1, 2, ['--iface', 'ib0', '--rdzv-timeout', '5', ...listening])
  const { code, stderr } = await run.finished
  expect(code).toBe(2)
  expect(stderr).toContain('no network interface or address ib0; it has lo (127.0.0.1')
  expect(stderr).toContain('eth0 (10.99.0.2')
})

onHosts('a loopback interface is refused if the job has several hosts', async () => {
  const cluster = new Cluster(2)
  const runs = [[], ['--iface', 'lo']].map((own, i) => cluster.tsrun(i, 2, [...own, ...listening]))
  for (const { code, stderr } of await Promise.all(runs.map(({ finished }) => finished))) {
    expect(code).toBe(2)
    expect(stderr).toContain('Node 1 (n1) would be reached at 127.0.0.1, a loopback address')
    expect(stderr).toContain('(ERR_TSR_LOOPBACK)')
  }
})

onHosts('ranks without tsrun also refuse a loopback interface', async () => {
  const cluster = new Cluster(2)
  const env = { MASTER_ADDR: '10.99.0.1', MASTER_PORT: '29500', TSRUN_TOKEN: token }
  const runs = [0, 1].map((rank) =>
    cluster.run(rank, [process.execPath, ...listening], {
      ...env,
      ...{ RANK: String(rank), WORLD_SIZE: '2', LOCAL_RANK: '0', LOCAL_WORLD_SIZE: '1' },
      TSRUN_IFACE: rank === 0 ? 'lo' : '',
    }),
  )
  const ends = await Promise.all(runs.map(({ finished }) => finished))
  for (const { code } of ends) expect(code).not.toBe(0)
  // Rank 0 hosts the store, which ends with it: the other may know no more than that.
  expect(ends[0]!.stderr).toContain('Rank 0 would be reached at 127.0.0.1, a loopback address')
})

onHosts('a loopback endpoint is named as the reason why hosts do not meet', async () => {
  const cluster = new Cluster(2)
  const endpoint = ['--rdzv-endpoint', '127.0.0.1:29500', '--rdzv-timeout', '3']
  const runs = [0, 1].map((i) => cluster.tsrun(i, 2, [...endpoint, ...listening]))
  for (const { code, stderr } of await Promise.all(runs.map(({ finished }) => finished))) {
    expect(code).toBe(75)
    expect(stderr).toContain('127.0.0.1 is a loopback address: only its own host reaches it')
  }
})

onHosts('node 0 fails after --rdzv-timeout if its name is that of another host', async () => {
  const cluster = new Cluster(2)
  const wrong = ['--rdzv-endpoint', 'n1:29500', '--rdzv-timeout', '4']
  const run = cluster.tsrun(0, 2, [...wrong, ...listening])
  const { code, stderr } = await run.finished
  expect(code).toBe(75)
  const problem = 'the name of node 0: n1 (10.99.0.2) is no address of this host'
  expect(stderr).toContain(`tsrun: waiting for ${problem}; 2 s\n`)
  expect(stderr).toContain(`The nodes of the job did not come together within 4 s: ${problem}`)
})

onHosts('node 0 fails at once if its host does not have the address of the endpoint', async () => {
  const cluster = new Cluster(2)
  const run = cluster.tsrun(0, 2, ['--rdzv-endpoint', '10.99.0.2:29500', ...listening])
  const { code, stderr } = await run.finished
  expect(code).toBe(2)
  expect(stderr).toContain('cannot listen at 10.99.0.2:29500: 10.99.0.2 is no address of this host')
  expect(stderr).toContain('Start node 0 on the host that has this address')
})

/** Two hosts by turns: node 0 with and without its number, ranks with and without tsrun. */
describe('the name of node 0', () => {
  const start = (cluster: Cluster, how: string, name: string): HostRun[] =>
    [0, 1].map((host) => {
      if (how === 'variables') {
        const place = { RANK: String(host), WORLD_SIZE: '2', LOCAL_WORLD_SIZE: '1' }
        const common = { MASTER_ADDR: name, MASTER_PORT: '29500', TSRUN_TOKEN: token }
        const program = 'test/fixtures/distributed/join.mjs'
        return cluster.run(host, [process.execPath, program], { ...place, ...common })
      }
      const flags = ['--nnodes', '2', '--rdzv-endpoint', `${name}:29500`, '--log-format', 'raw']
      const number = how === 'numbers' ? ['--node-rank', String(host)] : []
      const bin = [process.execPath, 'packages/launcher/bin/tsrun.js']
      const command = [...bin, ...flags, ...number, 'test/fixtures/distributed/join.mjs']
      return cluster.run(host, command, { TSRUN_TOKEN: token })
    })
  const met = async (runs: readonly HostRun[]): Promise<void> => {
    for (const { code, stdout, stderr } of await Promise.all(runs.map((run) => run.finished))) {
      expect({ code, stderr }).toEqual({ code: 0, stderr })
      expect(stdout).toContain('"sum":1')
    }
  }
  const ways = ['numbers', 'no numbers', 'variables']
  const waits = /waiting for the name of node 0: the name late is unknown|waits for MASTER_ADDR/

  for (const how of ways) {
    onHosts(`may become known after the nodes have started (${how})`, async () => {
      const cluster = new Cluster(2)
      const runs = start(cluster, how, 'late')
      await runs[0]!.says(waits)
      cluster.alias(0, 'late')
      await met(runs)
    })

    onHosts(`may first resolve to a host that is gone (${how})`, async () => {
      const cluster = new Cluster(2)
      cluster.alias('10.99.0.99', 'late')
      const runs = start(cluster, how, 'late')
      await runs[0]!.says(/is no address of this host|waits for MASTER_ADDR|waiting for node 0 at/)
      cluster.rename('late', '10.99.0.1')
      await met(runs)
    })

    onHosts(`may resolve first to an IPv6 address of another host (${how})`, async () => {
      const cluster = new Cluster(2)
      for (const host of [0, 1]) cluster.address(host, `fd99::${host + 1}`)
      cluster.alias('fd99::99', 'late')
      cluster.alias(0, 'late')
      await met(start(cluster, how, 'late'))
    })

    onHosts(`may resolve to an IPv6 and an IPv4 address (${how})`, async () => {
      const cluster = new Cluster(2)
      for (const host of [0, 1]) cluster.address(host, `fd99::${host + 1}`)
      cluster.alias('fd99::1', 'late')
      cluster.alias(0, 'late')
      await met(start(cluster, how, 'late'))
    })
  }
})

onHosts(
  'other hosts find a host that resolves its own name to loopback, as Debian does',
  async () => {
    const cluster = new Cluster(2)
    // What Debian's installer writes into /etc/hosts, on this host only.
    const hosts = 'umount /etc/hosts; printf "127.0.1.1 n0\\n127.0.0.1 localhost\\n" > "$0"; '
    const bind = 'mount --bind "$0" /etc/hosts; exec "$@"'
    const file = `/run/tsrun-netns/${cluster.name}/debian`
    const command = (i: number, own: readonly string[]): string[] => [
      ...own,
      process.execPath,
      'packages/launcher/bin/tsrun.js',
      ...['--nnodes', '2', '--node-rank', String(i), '--rdzv-endpoint', 'n0:29500'],
      ...['--log-format', 'raw', ...listening],
    ]
    const env = { TSRUN_TOKEN: token }
    const zero = cluster.run(0, command(0, ['bash', '-c', hosts + bind, file]), env)
    const one = cluster.run(1, command(1, []), env)
    const ends = await Promise.all([zero.finished, one.finished])
    for (const { code, stderr } of ends) expect({ code, stderr }).toEqual({ code: 0, stderr })
    const facts = ends.map(({ stdout }) => JSON.parse(stdout) as Rank)
    expect(facts.map(({ endpoint }) => endpoint.host)).toEqual(['10.99.0.1', '10.99.0.2'])
    expect(facts.map(({ masterAddr }) => masterAddr)).toEqual(['10.99.0.1', '10.99.0.1'])
  },
)

onHosts('a node waits for a late node 0, and names it', async () => {
  const cluster = new Cluster(2)
  const one = cluster.tsrun(1, 2, listening)
  await until(() => one.stderr.includes('waiting for node 0 at n0:29500'), 'it waits')
  const zero = cluster.tsrun(0, 2, listening)
  const ends = await Promise.all([zero.finished, one.finished])
  expect(ends.map(({ code }) => code)).toEqual([0, 0])
})
