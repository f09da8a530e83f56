import { jest } from '@jest/globals'
import { endSshClusters, onSsh, SSH_PORT, SshCluster } from './support/ssh.ts'
import type { Finished } from '../launcher/support/tsrun.ts'

jest.setTimeout(120_000)

afterEach(endSshClusters)

function doctor(on: SshCluster, args: readonly string[]): Promise<Finished> {
  return on.tsrun(['doctor', '--hosts', on.hostfile, ...on.ssh, ...args]).finished
}

interface Report {
  readonly canRun: boolean
  readonly hosts: readonly { name: string; facts?: { address: string } }[]
  readonly links: readonly {
    readonly from: number
    readonly to: number
    readonly problem?: string
    readonly link?: {
      roundTrip: number
      bandwidth: number
      ahead: number
      doubt: number
    }
  }[]
  readonly remarks: readonly { state: string; text: string; advice?: string }[]
}

describe('tsrun doctor --hosts', () => {
  onSsh('measures each link between the hosts, in both directions', async () => {
    const on = await SshCluster.start(3)
    const { code, stdout, stderr } = await doctor(on, ['--json'])
    expect({ code, stderr }).toMatchObject({ code: 0 })
    expect(stderr).toMatch(/^tsrun: looks at 3 hosts and 6 links between them\n$/)
    const { canRun, hosts, links } = JSON.parse(stdout) as Report
    expect({ canRun, hosts }).toMatchObject({
      canRun: true,
      hosts: [0, 1, 2].map((i) => ({ name: `n${i}`, facts: { address: `10.99.0.${i + 1}` } })),
    })
    expect(links.map(({ from, to }) => `${from}${to}`).toSorted()).toEqual(
      '01 02 10 12 20 21'.split(' '),
    )
    for (const { link } of links) {
      expect(link!.roundTrip).toBeLessThan(50)
      expect(link!.bandwidth).toBeGreaterThan(1e6)
      // All hosts are this machine and have its clock.
      expect(Math.abs(link!.ahead)).toBeLessThan(link!.doubt + 5)
    }
  })

  onSsh('prints tables that fit into 80 columns', async () => {
    const on = await SshCluster.start(2)
    const { code, stdout } = await doctor(on, [])
    expect({ code, stdout }).toMatchObject({ code: 0 })
    expect(stdout).toMatch(/^0 {2}n0 +10\.99\.0\.1 +v\d+\.\d+\.\d+ /m)
    expect(stdout).toMatch(/^0 +· +\d+$/m)
    expect(stdout).toMatch(/^1 +\d+\.\d\d +·$/m)
    expect(stdout).toMatch(/\nA job can run on these hosts\.\n$/)
    expect(Math.max(...stdout.split('\n').map(({ length }) => length))).toBeLessThanOrEqual(80)
  })

  onSsh('names the host that ssh does not reach, and continues with the others', async () => {
    const on = await SshCluster.start(3)
    on.write([`n0 port=${SSH_PORT}`, 'n1 port=2223', `n2 port=${SSH_PORT}`])
    const { code, stdout } = await doctor(on, [])
    expect(code).toBe(1)
    expect(stdout).toMatch(/^FAILS {2}n1: .*Connection refused/m)
    expect(stdout).toMatch(/^2 +\d+ +– +·$/m)
  })

  onSsh('names blocked ports', async () => {
    const on = await SshCluster.start(2)
    on.cluster.shut(1, '10.99.0.2', '29600-29699')
    on.cluster.shut(0, '10.99.0.1', '29500')
    const { code, stdout } = await doctor(on, ['--port-range', '29600-29699'])
    expect(code).toBe(1)
    expect(stdout).toMatch(
      /^FAILS {2}n1 does not reach the store at n0:29500: .*\n +-> Open port 29500 of n0/m,
    )
    expect(stdout).toMatch(
      /^FAILS {2}n0 does not reach n1 at 10\.99\.0\.2:29600: .*\n +-> Open the ports of the ranks on n1; --port-range limits them\.$/m,
    )
  })
})
