import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { killLeftovers, tsrun, type Finished } from '../../launcher/support/tsrun.ts'

/** Where the test running now has its files. */
export let folder = ''
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true, force: true })
})

export const script = '../ranks/paced.mjs'

/** Runs a job of three ranks with these faults. */
export async function inject(
  faults: readonly object[],
  {
    args = [],
    what = 'nothing',
    env = {},
  }: Partial<Record<'args', readonly string[]>> & {
    readonly what?: string
    readonly env?: NodeJS.ProcessEnv
  } = {},
): Promise<Finished> {
  const plan = join(folder, 'plan.yaml')
  writeFileSync(plan, JSON.stringify({ seed: 5, faults }))
  const flags = ['--nproc', '3', '--grace', '1', '--no-summary', '--chaos', plan, ...args]
  return await tsrun([...flags, script, what], { env: { TMPDIR: folder, ...env } })
}

/** A fault that ends rank 1: its kind, its other fields, what the report says, and what the script does. */
export type Death = readonly [kind: string, facts: object, cause: RegExp, what: string]

const uncaught = /rank 1 of 3 died of an uncaught error .*\n[^]*a fault of --chaos/

/** One of each mechanism. */
export const usualDeaths: readonly Death[] = [
  ['kill', {}, /rank 1 of 3 was killed by SIGKILL/, 'nothing'],
  ['throw', {}, uncaught, 'nothing'],
  ['memory', {}, /rank 1 of 3 ran out of JavaScript heap/, 'nothing'],
  ['descriptors', {}, /rank 1 of 3 died of an uncaught error .*\n[^]*EMFILE/, 'opens'],
  ['disk', {}, /rank 1 of 3 died of an uncaught error .*\n[^]*EFBIG/, 'writes'],
]

export const otherDeaths: readonly Death[] = [
  ['kill', { signal: 'SIGSEGV' }, /rank 1 of 3 was killed by SIGSEGV/, 'nothing'],
  ['exit', { code: 9 }, /rank 1 of 3 called process\.exit\(9\)/, 'nothing'],
  ['reject', {}, uncaught, 'nothing'],
]

export function describeDeaths(deaths: readonly Death[]): void {
  it.each(deaths)(
    '--chaos makes the report name the rank with the fault: %s %j',
    async (kind, facts, cause, what) => {
      const env = kind === 'memory' ? { NODE_OPTIONS: '--max-old-space-size=40' } : {}
      const { code, stderr } = await inject([{ kind, rank: 1, step: 8, ...facts }], { env, what })
      expect(stderr).toMatch(/tsrun: chaos: rank 1 .+, after step \d+\n/)
      expect(stderr).toMatch(cause)
      expect(code).not.toBe(0)
    },
  )
}

export function describeBreaking(kinds: readonly string[]): void {
  it.each(kinds)('--chaos breaks the connections of a rank: %s', async (kind) => {
    const { code, stderr } = await inject([{ kind, rank: 1, operations: 20 }], {
      env: { TSRUN_TRANSPORT: 'tcp' },
    })
    expect(code).toBe(1)
    expect(stderr).toMatch(/chaos: rank 1 .+, after \d+ operations\n/)
    expect(stderr).toContain('ERR_TSR_PEER_LOST')
  })
}

/** How the data that a rank sends is damaged: engine, kind of fault and flag. */
export type Damage = readonly [engine: string, kind: string, flag: string]

const reasons: Readonly<Record<string, string>> = {
  'corrupt ': 'it sent bytes that are no frame',
  'corrupt --tls': 'what it sent was changed, repeated or left out on the way',
  'drop ': 'it sent bytes that are no frame',
  'drop --tls': 'what it sent was changed, repeated or left out on the way',
  'truncate ': 'it closed the connection',
  'truncate --tls': 'it closed the connection',
}

/** Every engine and kind of fault, and the connections with and without TLS. */
export const usualDamages: readonly Damage[] = [
  ['worker', 'corrupt', '--tls'],
  ['worker', 'truncate', ''],
  ['inline', 'drop', ''],
]

export const otherDamages: readonly Damage[] = ['worker', 'inline']
  .flatMap((engine) =>
    ['corrupt', 'drop', 'truncate'].flatMap((kind) =>
      ['', '--tls'].map((flag) => [engine, kind, flag] as const),
    ),
  )
  .filter((damage) => !usualDamages.some((usual) => usual.join() === damage.join()))

export function describeDamage(damages: readonly Damage[]): void {
  it.each(damages)(
    'data that a rank sends (engine %s) is damaged by --chaos, and other ranks detect it: %s %s',
    async (engine, kind, flag) => {
      const env = { TSRUN_TRANSPORT: 'tcp', TSRUN_ENGINE: engine }
      const logs = join(folder, 'logs')
      const args = ['--log-dir', logs, ...(flag === '' ? [] : [flag])]
      const faults = [{ kind, rank: 1, operations: 20 }]
      const { code, stderr } = await inject(faults, { args, env })
      expect(code).toBe(1)
      expect(stderr).toMatch(/chaos: rank 1 .+, after \d+ operations\n/)
      expect(stderr).toContain('ERR_TSR_PEER_LOST')
      // The report shows only the first error, which may come from a rank that lost the others in turn.
      const others = readdirSync(logs, { recursive: true, encoding: 'utf8' })
        .filter((name) => /\/[02]\/stderr\.log$/.test(name))
        .map((name) => readFileSync(join(logs, name), 'utf8'))
      expect(others).toHaveLength(2)
      const reason = reasons[`${kind} ${flag}`]!
      expect(others.join('')).toContain(`Rank 1 is gone (${reason}) while rank`)
    },
  )
}

export function describeDelay(engines: readonly string[]): void {
  it.each(engines)(
    'data that a rank sends (engine %s) arrives completely although --chaos delays it, even when the rank ends',
    async (engine) => {
      const env = { TSRUN_TRANSPORT: 'tcp', TSRUN_ENGINE: engine }
      const begin = performance.now()
      const { code, stdout, stderr } = await inject(
        [
          { kind: 'delay', rank: 1, operations: 10, milliseconds: 5, forSeconds: 1 },
          { kind: 'delay', rank: 0, operations: 20, milliseconds: 1500, forSeconds: 1 },
          { kind: 'delay', rank: 2, operations: 39, milliseconds: 300, forSeconds: 60 },
        ],
        { env, what: 'much' },
      )
      expect({ code, stderr }).toMatchObject({ code: 0 })
      expect(stderr.match(/chaos: rank \d gets the fault delay/g)).toHaveLength(3)
      for (const rank of [0, 1, 2]) expect(stdout).toContain(`rank ${rank} of attempt 0: 3, 0 s`)
      // the steps take 800 ms at least
      expect(performance.now() - begin).toBeGreaterThan(800 + 1500 + 300)
    },
  )
}
