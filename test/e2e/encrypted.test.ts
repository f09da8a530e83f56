import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { allFinished, node } from '../launcher/support/nodes.ts'
import { killLeftovers, type Run } from '../launcher/support/tsrun.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

const path = (file: string): string =>
  fileURLToPath(new URL(`../fixtures/${file}`, import.meta.url))

function certificateFlags(name: string): string[] {
  const files = { cert: `${name}.pem`, key: `${name}.key`, ca: 'authority.pem' }
  return Object.entries(files).flatMap(([flag, file]) => [`--tls-${flag}`, path(`tls/${file}`)])
}

/** Two launchers, as of two hosts, whose ranks train the same model over TCP. */
async function train(flags: readonly string[]): Promise<string> {
  const script = path('training/over-network.mjs')
  const runs = [0, 1].map((rank) =>
    node(rank, 2, ['--nproc', '2', '--no-summary', ...flags, script], {
      env: { TSRUN_TRANSPORT: 'tcp' },
    }),
  )
  const ends = await allFinished(runs)
  expect(ends.map(({ code, stderr }) => ({ code, stderr: code === 0 ? '' : stderr }))).toEqual(
    Array(2).fill({ code: 0, stderr: '' }),
  )
  const digest = /digest (\w+) \((\w+)\)/.exec(ends.map(({ stdout }) => stdout).join(''))
  return digest?.slice(1).join(' ') ?? 'none'
}

it('training gives identical bits with --tls, with certificates and without TLS', async () => {
  const plain = await train([])
  expect(plain).toMatch(/^[0-9a-f]{64} plain$/)
  const encrypted = plain.replace('plain', 'encrypted')
  expect(await train(['--tls'])).toBe(encrypted)
  expect(await train(certificateFlags('host'))).toBe(encrypted)
})

describe('a host with different TLS settings is refused', () => {
  /** What the second host says that was started with other flags. */
  async function refusal(first: readonly string[], second: readonly string[]): Promise<string> {
    const start = (rank: number, flags: readonly string[]): Run =>
      node(rank, 2, ['--rdzv-timeout', '20', ...flags, 'hello.mjs'])
    const zero = start(0, first)
    const one = start(1, second)
    const { code, stderr } = await one.finished
    zero.signal('SIGINT')
    await zero.finished
    expect(code).not.toBe(0)
    return stderr
  }

  it('without --tls', async () => {
    const stderr = await refusal(['--tls'], [])
    expect(stderr).toContain('encrypts its connections, and this process does not')
    expect(stderr).toContain('Start tsrun with --tls on all hosts, or on none.')
  })

  it('with --tls', async () => {
    const stderr = await refusal([], ['--tls'])
    expect(stderr).toContain('does not encrypt its connections, and this process does')
  })

  it('with a certificate of another authority', async () => {
    const stderr = await refusal(certificateFlags('host'), certificateFlags('stranger'))
    expect(stderr).toContain('it does not accept the certificate of this process')
  })

  it('with missing certificate files as an error in the command line', async () => {
    const { code, stderr } = await node(0, 2, ['--tls-cert', '/none.pem', 'hello.mjs']).finished
    expect(code).toBe(2)
    expect(stderr).toContain('--tls-cert needs the name of a file in the format PEM')
  })
})
