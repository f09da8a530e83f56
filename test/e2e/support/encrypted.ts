import { fileURLToPath } from 'node:url'
import { allFinished, node } from '../../launcher/support/nodes.ts'

const path = (file: string): string =>
  fileURLToPath(new URL(`../../fixtures/${file}`, import.meta.url))

export function certificateFlags(name: string): string[] {
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

/** `flags` are those of encrypted jobs. */
export function describeEncrypted(flags: readonly (readonly string[])[]): void {
  it.each(flags.map((each) => [each[0]!, each] as const))(
    'training gives identical bits with %s and without TLS',
    async (_, own) => {
      const plain = await train([])
      expect(plain).toMatch(/^[0-9a-f]{64} plain$/)
      expect(await train(own)).toBe(plain.replace('plain', 'encrypted'))
    },
  )
}
