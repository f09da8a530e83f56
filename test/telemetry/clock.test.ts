import { execFileSync } from 'node:child_process'
import { now, onSharedClock } from '@tsrun/telemetry'

describe('the clock', () => {
  it('is the one of process.hrtime, which every process of the host reads alike', () => {
    const before = now()
    const child = execFileSync(process.execPath, ['-p', 'process.hrtime.bigint().toString()'])
    const after = now()
    const between = Number(BigInt(child.toString().trim())) / 1e6
    expect(between).toBeGreaterThan(before)
    expect(between).toBeLessThan(after)
  })

  it('takes over times of performance.now()', () => {
    const before = now()
    const time = onSharedClock(performance.now())
    expect(time).toBeGreaterThanOrEqual(before)
    expect(time).toBeLessThanOrEqual(now())
  })
})
