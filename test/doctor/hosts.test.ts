import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fakeHosts } from '../launcher/support/fake-ssh.ts'
import { tsrunHere } from '../launcher/support/in-process.ts'
import { bin } from '../launcher/support/tsrun.ts'
import {
  answerLinks,
  measureLink,
  SECRET_BYTES,
  remarksOf,
  surveyText,
  rounds,
  type Survey,
} from '../internals/doctor.ts'

const secret = Buffer.alloc(SECRET_BYTES, 7)

let servers: Server[] = []
afterEach(() => {
  for (const server of servers) server.close()
  servers = []
})

async function listen(): Promise<number> {
  const { server, port } = await answerLinks(secret)
  servers.push(server)
  return port
}

const options = { host: '127.0.0.1', secret, limit: 5000, hasBandwidth: true }

describe('a link', () => {
  it('is measured by round trips, clock offset and throughput', async () => {
    const link = await measureLink({ ...options, port: await listen() })
    expect(link.roundTrip).toBeGreaterThan(0)
    expect(link.bandwidth).toBeGreaterThan(1e6)
    expect(Math.abs(link.ahead)).toBeLessThan(link.doubt + 1)
  })

  it('rejects connections without the secret', async () => {
    const port = await listen()
    const stranger = Buffer.alloc(SECRET_BYTES)
    await expect(measureLink({ ...options, port, secret: stranger })).rejects.toThrow(
      /the connection was closed|ECONNRESET|EPIPE/,
    )
  })

  it('times out when no host answers', async () => {
    const silent = createServer()
    servers.push(silent)
    silent.listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const { port } = silent.address() as AddressInfo
    await expect(measureLink({ ...options, port, limit: 200 })).rejects.toThrow(
      'no answer within 0.2 s',
    )
  })
})

describe('rounds', () => {
  it.each([2, 3, 4, 7, 8])(
    'measure each pair of %i hosts once, with each host in at most one pair per round',
    (hosts) => {
      const all = [...rounds(Array.from({ length: hosts }, (_, i) => i))]
      for (const pairs of all) expect(new Set(pairs.flat()).size).toBe(2 * pairs.length)
      const names = all.flat().map((pair) => [...pair].sort((a, b) => a - b).join('-'))
      expect(names).toHaveLength((hosts * (hosts - 1)) / 2)
      expect(new Set(names).size).toBe(names.length)
    },
  )
})

const facts = {
  node: 'v24.1.0',
  address: '10.0.0.1',
  problem: undefined,
  first: '10.0.0.1',
  cores: 8,
  sharing: undefined,
  shm: 2 ** 30,
  openFiles: 65_536,
}
const link = { roundTrip: 0.05, ahead: 0, doubt: 0.02, bandwidth: 2e9 }

/** Hosts that are alike, with equal links. */
function surveyOf(count: number): Survey {
  const all = Array.from({ length: count }, (_, i) => i)
  return {
    port: 29_500,
    hosts: all.map((i) => ({ name: `n${i}`, facts })),
    links: all.flatMap((from) =>
      all.filter((to) => to !== from).map((to) => ({ from, to, link: { ...link } })),
    ),
    store: all.map(() => undefined),
  }
}

describe('the report', () => {
  it('has no remarks if all hosts are alike', () => {
    expect(remarksOf(surveyOf(4))).toEqual([])
  })

  it('names a wrong clock and a low limit', () => {
    const survey = surveyOf(3)
    const links = survey.links.map((one) => {
      const isWrong = one.from === 0 && one.to === 2
      return { ...one, link: { ...link, ahead: isWrong ? -2500 : link.ahead } }
    })
    const hosts = [...survey.hosts.slice(0, 2), { name: 'n2', facts: { ...facts, openFiles: 256 } }]
    expect(remarksOf({ ...survey, links, hosts }).map(({ text }) => text)).toEqual([
      'n2: only 256 open files for a process',
      'the clock of n2 differs by -2500.0 ms from that of n0',
    ])
  })

  it('says that a host resolves the first host to a loopback address', () => {
    const survey = surveyOf(2)
    const hosts = [survey.hosts[0]!, { name: 'n1', facts: { ...facts, address: '127.0.1.1' } }]
    expect(remarksOf({ ...survey, hosts })).toMatchObject([
      { state: 'FAILS', advice: expect.stringMatching(/n0 leads to loopback/) as string },
    ])
  })

  it.each([2, 8, 64])('of %i hosts fits into 80 columns', (count) => {
    const lines = surveyText(surveyOf(count), []).split('\n')
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(80)
  })
})

it('tsrun doctor --hosts names a host whose ranks have no free port', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-doctor-'))
  const answer = `*) exec ${process.execPath} ${bin} doctor --answer ;;`
  const { file, ssh } = fakeHosts(folder, ['a', 'b'], answer)
  const port = String(await listen())
  const args = ['doctor', '--hosts', file, ...ssh, '--port-range', port]
  const { code, stdout } = await tsrunHere(args, { cwd: folder })
  rmSync(folder, { recursive: true })
  expect({ code, stdout }).toEqual({
    code: 1,
    stdout: expect.stringContaining('EADDRINUSE'),
  })
})
