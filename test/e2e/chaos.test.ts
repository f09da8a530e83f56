import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { killLeftovers, tsrun, type Finished } from '../launcher/support/tsrun.ts'

jest.setTimeout(30_000)

let folder = ''
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true, force: true })
})

const script = '../ranks/paced.mjs'

/** A job of three ranks with these faults. */
async function suffer(
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

describe('--chaos', () => {
  it.each<[string, object, RegExp, string]>([
    ['kill', {}, /rank 1 of 3 was killed by SIGKILL/, 'nothing'],
    ['kill', { signal: 'SIGSEGV' }, /rank 1 of 3 was killed by SIGSEGV/, 'nothing'],
    ['exit', { code: 9 }, /rank 1 of 3 called process\.exit\(9\)/, 'nothing'],
    ['throw', {}, /rank 1 of 3 died of an uncaught error .*\n[^]*a fault of --chaos/, 'nothing'],
    ['reject', {}, /rank 1 of 3 died of an uncaught error .*\n[^]*a fault of --chaos/, 'nothing'],
    ['memory', {}, /rank 1 of 3 ran out of JavaScript heap/, 'nothing'],
    ['descriptors', {}, /rank 1 of 3 died of an uncaught error .*\n[^]*EMFILE/, 'opens'],
    ['disk', {}, /rank 1 of 3 died of an uncaught error .*\n[^]*EFBIG/, 'writes'],
  ])('makes the report name the rank with the fault: %s %j', async (kind, facts, cause, what) => {
    const env = kind === 'memory' ? { NODE_OPTIONS: '--max-old-space-size=40' } : {}
    const { code, stderr } = await suffer([{ kind, rank: 1, step: 8, ...facts }], { env, what })
    expect(stderr).toMatch(/tsrun: chaos: rank 1 .+, after step \d+\n/)
    expect(stderr).toMatch(cause)
    expect(code).not.toBe(0)
  })

  it.each(['disconnect', 'half-close'])('breaks the connections of a rank: %s', async (kind) => {
    const { code, stderr } = await suffer([{ kind, rank: 1, operations: 20 }], {
      env: { TSRUN_TRANSPORT: 'tcp' },
    })
    expect(code).toBe(1)
    expect(stderr).toMatch(/chaos: rank 1 .+, after \d+ operations\n/)
    expect(stderr).toContain('ERR_TSR_PEER_LOST')
  })

  describe.each(['inline', 'worker'])('the data that a rank sends (engine %s)', (engine) => {
    const env = { TSRUN_TRANSPORT: 'tcp', TSRUN_ENGINE: engine }

    it.each([
      ['corrupt', '', 'it sent bytes that are no frame'],
      ['corrupt', '--tls', 'what it sent was changed, repeated or left out on the way'],
      ['drop', '', 'it sent bytes that are no frame'],
      ['drop', '--tls', 'what it sent was changed, repeated or left out on the way'],
      ['truncate', '', 'it closed the connection'],
      ['truncate', '--tls', 'it closed the connection'],
    ])('is damaged by the fault, and other ranks detect it: %s %s', async (kind, flag, reason) => {
      const logs = join(folder, 'logs')
      const args = ['--log-dir', logs, ...(flag === '' ? [] : [flag])]
      const faults = [{ kind, rank: 1, operations: 20 }]
      const { code, stderr } = await suffer(faults, { args, env })
      expect(code).toBe(1)
      expect(stderr).toMatch(/chaos: rank 1 .+, after \d+ operations\n/)
      expect(stderr).toContain('ERR_TSR_PEER_LOST')
      // the report shows only what the first said, which may be the rank that has lost the others in turn
      const others = readdirSync(logs, { recursive: true, encoding: 'utf8' })
        .filter((name) => /\/[02]\/stderr\.log$/.test(name))
        .map((name) => readFileSync(join(logs, name), 'utf8'))
      expect(others).toHaveLength(2)
      expect(others.join('')).toContain(`Rank 1 is gone (${reason}) while rank`)
    })

    it('arrives completely although it is delayed, even when the rank ends', async () => {
      const begin = performance.now()
      const { code, stdout, stderr } = await suffer(
        [
          { kind: 'delay', rank: 1, operations: 10, milliseconds: 5, forSeconds: 1 },
          { kind: 'delay', rank: 0, operations: 20, milliseconds: 1500, forSeconds: 1 },
          { kind: 'delay', rank: 2, operations: 39, milliseconds: 500, forSeconds: 60 },
        ],
        { env, what: 'much' },
      )
      expect({ code, stderr }).toMatchObject({ code: 0 })
      expect(stderr.match(/chaos: rank \d sends .+ late/g)).toHaveLength(3)
      for (const rank of [0, 1, 2]) expect(stdout).toContain(`rank ${rank} of attempt 0: 3, 0 s`)
      // the steps take 800 ms at least
      expect(performance.now() - begin).toBeGreaterThan(800 + 1500 + 500)
    })
  })

  it('says that a rank has no connection whose messages could be damaged', async () => {
    const faults = [{ kind: 'corrupt', rank: 1, operations: 20 }]
    const { code, stderr } = await suffer(faults, { env: { TSRUN_TRANSPORT: 'node' } })
    expect({ code, stderr }).toMatchObject({ code: 0 })
    expect(stderr).toContain('chaos: this rank has no connection of the transport tcp')
  })

  it('stops a rank from mapping memory', async () => {
    const { code, stderr } = await suffer([{ kind: 'address-space', rank: 1, step: 8 }], {
      what: 'maps',
    })
    expect(code).not.toBe(0)
    expect(stderr).toContain('chaos: rank 1 can map no memory any more')
    expect(stderr).toMatch(/rank 1 of 3 (died of|was killed|ran out)/)
  })

  it('lets a job continue after a rank was suspended, busy or slow, and after its clock has jumped', async () => {
    const { code, stdout, stderr } = await suffer([
      { kind: 'stop', rank: 0, step: 5, forSeconds: 0.3 },
      { kind: 'busy', rank: 1, step: 10, forSeconds: 0.3 },
      { kind: 'clock', rank: 2, step: 15, bySeconds: -7200 },
      { kind: 'slow', rank: 0, step: 20, share: 0.5, forSeconds: 0.3 },
    ])
    expect({ code, stderr }).toMatchObject({ code: 0 })
    expect(stderr.match(/chaos: /g)).toHaveLength(4)
    expect(stdout).toContain('rank 1 of attempt 0: 3, 0 s')
    expect(stdout).toContain('rank 2 of attempt 0: 3, -7200 s')
  })

  it('injects faults into restarted ranks too, and records them in the event log', async () => {
    const events = join(folder, 'events')
    const faults = [
      { kind: 'kill', seconds: 0.1 },
      { kind: 'throw', attempt: 1, rank: 0, step: 3 },
    ]
    const args = ['--max-restarts', '2', '--event-log', events]
    const { code, stdout, stderr } = await suffer(faults, { args })
    expect({ code, stderr }).toMatchObject({ code: 0 })
    expect(stdout).toContain('rank 0 of attempt 2: 3, 0 s')
    const injected = readFileSync(events, 'utf8')
      .split('\n')
      .filter((line) => line.includes('"fault-injected"'))
      .map((line) => JSON.parse(line) as object)
    expect(injected).toMatchObject([
      { generation: 0, kind: 'kill', what: 'gets SIGKILL', when: '0.1 s after the start' },
      { generation: 1, kind: 'throw', rank: 0, when: expect.stringMatching(/^after step \d+$/) },
    ])
  })

  it('chooses the same rank for the same seed', async () => {
    const runs = [1, 2].map(() => suffer([{ kind: 'exit', step: 1 }]))
    const [first, second] = (await Promise.all(runs)).map(
      ({ stderr }) => /chaos: (rank \d)/.exec(stderr)![1],
    )
    expect(first).toBe(second)
  })

  it('refuses an unreadable plan, and faults that --no-python does not support', async () => {
    const plan = join(folder, 'plan.yaml')
    const wrong = await tsrun(['--chaos', plan, script])
    expect(wrong).toMatchObject({ code: 2 })
    expect(wrong.stderr).toContain('no such file')
    writeFileSync(plan, 'faults: [{ kind: kill, rank: 99, seconds: 1 }]')
    const nobody = await tsrun(['--nproc', '3', '--chaos', plan, script])
    expect(nobody).toMatchObject({ code: 2 })
    expect(nobody.stderr).toContain('fault 1: rank is 99; the job has 3 ranks')
    writeFileSync(plan, 'faults: [{ kind: throw, seconds: 1 }]')
    const program = await tsrun(['--chaos', plan, '--no-python', 'sleep', '1'])
    expect(program).toMatchObject({ code: 2 })
    expect(program.stderr).toContain('throw needs ranks that are Node')
  })
})
