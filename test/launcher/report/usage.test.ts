import { readUsage } from '../../../packages/launcher/src/report/usage.ts'

it('reads from /proc what the process itself measures', () => {
  const seen = readUsage(process.pid)!
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage()
  expect(seen.peakBytes / (maxRSS * 1024)).toBeCloseTo(1, 1)
  expect(Math.abs(seen.cpuSeconds - (userCPUTime + systemCPUTime) / 1e6)).toBeLessThan(0.5)
})

it('knows nothing of a process that is not there', () => {
  expect(readUsage(2 ** 22 + 1)).toBeUndefined()
})
