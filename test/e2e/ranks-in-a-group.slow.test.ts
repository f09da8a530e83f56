import { killLeftovers } from '../launcher/support/tsrun.ts'
import {
  describeFailedCalls,
  describeKilled,
  engines,
  jobOf,
  reportOf,
} from './support/ranks-in-a-group.ts'

afterEach(killLeftovers)

describeKilled(engines.slice(0, 1))

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

describeFailedCalls(['blocking'])

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
