import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import {
  killLeftovers,
  Run,
  tsrun,
  untilGone,
  type Finished,
  type Options,
} from '../launcher/support/tsrun.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

const cwd = fileURLToPath(new URL('../fixtures/ranks/', import.meta.url))

async function jobOf(ranks: number, program: string, options: Options = {}): Promise<Finished> {
  return await tsrun(['--nproc', String(ranks), program], { cwd, ...options })
}

function reportOf({ stderr }: Finished): string {
  const start = stderr.indexOf('── tsrun: the job failed')
  expect(start).toBeGreaterThanOrEqual(0)
  return stderr.slice(start)
}

describe.each([
  { name: 'engine in a worker', env: {} },
  { name: 'engine inline', env: { TSRUN_ENGINE: 'inline' } },
  { name: 'node sockets', env: { TSRUN_TRANSPORT: 'node' } },
])('a rank that is killed in the middle of all-reduces ($name)', ({ env }) => {
  it('is the root cause, not its peers, and no process is left', async () => {
    const run = new Run(['--nproc', '4', 'all-reduces.mjs'], { cwd, env })
    const ranks = await run.announced(4)
    const victim = ranks.find(({ rank }) => rank === 2)!
    process.kill(victim.pid, 'SIGKILL')
    const finished = await run.finished
    const report = reportOf(finished)
    expect(finished.code).toBe(137)
    expect(report).toContain('first cause  rank 2 of 4 was killed by SIGKILL')
    expect(report).toContain(`process      ${victim.pid} on `)
    expect(report.match(/first cause/g)).toHaveLength(1)
    await untilGone(ranks.map(({ pid }) => pid))
  })
})

it('the report names a rank that throws, with its stack, not the ranks that wait for it', async () => {
  const finished = await jobOf(3, 'throws.mjs')
  const report = reportOf(finished)
  expect(finished.code).toBe(1)
  expect(report).toContain('first cause  rank 1 of 3 died of an uncaught error')
  expect(report).toContain('RangeError: shard 1 is empty')
  expect(report).toMatch(/at loadShard \(.*throws\.mjs:7:\d+\)/)
})

it('the report names both calls if ranks call different collectives', async () => {
  const finished = await jobOf(3, 'mismatch.mjs')
  const report = reportOf(finished)
  expect(finished.code).toBe(1)
  expect(report).toContain('ERR_TSR_MISMATCH')
  const sentence = /this rank \(\d\) runs (.+) but rank \d runs (.+)/.exec(report)
  const calls = [sentence?.[1] ?? '', sentence?.[2] ?? '']
  expect(calls).toContainEqual(expect.stringMatching(/all-?reduce/i))
  expect(calls).toContainEqual(expect.stringMatching(/broadcast/i))
})

it.each(['awaited', 'blocking', 'object'])(
  'the report shows the line of the failed call: %s',
  async (way) => {
    const report = reportOf(await tsrun(['--nproc', '3', 'mismatch.mjs', way], { cwd }))
    expect(report).toContain('ERR_TSR_MISMATCH')
    const [first, second] = report.match(/at (?:async )?.*:\d+:\d+/g) ?? []
    expect(first).toMatch(/at (async )?call \(.*mismatch\.mjs:\d+:\d+/)
    expect(second).toMatch(/at (async )?file:.*mismatch\.mjs:24:\d+/)
  },
)

it('the report names the peer of a receive that timed out', async () => {
  const finished = await jobOf(3, 'nobody-sends.mjs')
  const report = reportOf(finished)
  expect(finished.code).toBe(1)
  expect(report).toContain('first cause  rank 0 of 3')
  expect(report).toContain('ERR_TSR_OPERATION_TIMEOUT')
  expect(report).toContain('timed out after 300 ms; waiting for rank 2')
})

it('a mesh that does not fit the world is refused', async () => {
  const finished = await jobOf(4, 'mesh.mjs')
  const report = reportOf(finished)
  expect(finished.code).toBe(1)
  expect(report).toContain('ERR_TSR_MESH_SHAPE')
  expect(report).toContain('has 3 ranks, but the world has 4')
})

it('a pipeline with more stages than layers is refused', async () => {
  const finished = await jobOf(4, 'stages.mjs')
  const report = reportOf(finished)
  expect(finished.code).toBe(1)
  expect(report).toContain('ERR_TSR_STAGES')
  expect(report).toContain('A model of 2 layers cannot be cut into 4 pipeline stages')
})
