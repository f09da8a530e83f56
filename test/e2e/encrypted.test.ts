import { node } from '../launcher/support/nodes.ts'
import { killLeftovers, type Run } from '../launcher/support/tsrun.ts'
import { certificateFlags, describeEncrypted } from './support/encrypted.ts'

afterEach(killLeftovers)

describeEncrypted([certificateFlags('host')])

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
