import { computingShare, type RankUse } from '../../../internals/launcher/job.ts'

const use = (facts: Partial<RankUse>): RankUse => ({
  ...{
    at: 0,
    ownTime: 0,
    step: undefined,
    cpuSeconds: 10,
    delay: 0,
    hasGpu: false,
    gpu: undefined,
  },
  ...facts,
})
const before = use({})
const gpu = (busy: number | undefined) => ({
  hasGpu: true,
  gpu: { index: '0', uuid: 'GPU-0', busy, memory: 0 },
})

it('the computing share is CPU time divided by the time outside of operations', () => {
  expect(computingShare(before, use({ at: 1000, ownTime: 860, cpuSeconds: 10.05 }))).toBeCloseTo(
    0.058,
  )
  // It waits for others in the rest of the second.
  expect(computingShare(before, use({ at: 1000, ownTime: 200, cpuSeconds: 10.2 }))).toBeCloseTo(1)
  // Several threads.
  expect(computingShare(before, use({ at: 1000, ownTime: 900, cpuSeconds: 13 }))).toBe(1)
})

it('the computing share is the utilization of the GPU if that is higher than the CPU', () => {
  const now = { at: 1000, ownTime: 1000, cpuSeconds: 10.1 }
  expect(computingShare(before, use({ ...now, ...gpu(90) }))).toBeCloseTo(0.9)
  expect(computingShare(before, use({ ...now, ...gpu(0) }))).toBeCloseTo(0.1)
})

it('the computing share is unknown while the rank waits for a core', () => {
  const now = use({ at: 1000, ownTime: 1000, cpuSeconds: 10.1, delay: 600 })
  expect(computingShare(before, now)).toBeUndefined()
})

it('the computing share is unknown without two samples, and while the rank may wait for its GPU', () => {
  const now = { at: 1000, ownTime: 1000, cpuSeconds: 10.1 }
  expect(computingShare(undefined, use(now))).toBeUndefined()
  expect(computingShare(before, use({ ...now, cpuSeconds: undefined }))).toBeUndefined()
  expect(computingShare(before, use({ ...now, ownTime: 5 }))).toBeUndefined()
  expect(computingShare(before, use({ ...now, hasGpu: true }))).toBeUndefined()
  expect(computingShare(before, use({ ...now, ...gpu(undefined) }))).toBeUndefined()
  const busy = { ...now, cpuSeconds: 10.8 }
  expect(computingShare(before, use({ ...busy, hasGpu: true }))).toBeCloseTo(0.8)
})
