import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { resultIn, runScript } from '../launcher/support/script.ts'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

const script = 'examples/parameter-server.ts'

describe('parameter-server.ts', () => {
  it('trains with a server and with all-reduce, and reports how stale gradients are', async () => {
    const flags = ['--steps', '30', '--slow', '30']
    const result = resultIn(await runScript(3, script, ...flags)) as Record<string, unknown>
    expect(result).toMatchObject({ ranks: 3, gradients: 60 })
    const shares = result['shares'] as number[]
    expect(shares).toHaveLength(2)
    expect(shares[0]! + shares[1]!).toBe(60)
    // both workers begin with the first parameters, so one of them is late at once
    expect(result['largest']).toBeGreaterThanOrEqual(1)
    expect(result['staleness']).toBeGreaterThan(0)
    expect(result['staleness']).toBeLessThanOrEqual(Number(result['largest']))
    expect(result['allReduceAccuracy']).toBeGreaterThan(0.5)
    expect(result['serverAccuracy']).toBeGreaterThan(0.3)
  })

  it('has no stale gradients with one worker, and then equals all-reduce', async () => {
    const flags = ['--steps', '10', '--slow', '0']
    const result = resultIn(await runScript(2, script, ...flags)) as Record<string, unknown>
    expect(result).toMatchObject({ gradients: 10, staleness: 0, largest: 0, shares: [10] })
    expect(result['serverAccuracy']).toBe(result['allReduceAccuracy'])
  })

  it('refuses a single rank', async () => {
    const cwd = fileURLToPath(new URL('../../', import.meta.url))
    const run = await tsrun(['--nproc', '1', '--no-summary', script], { cwd })
    expect(run.code).toBe(2)
    expect(run.stderr).toContain('A server and a worker are two ranks.')
  })
})
