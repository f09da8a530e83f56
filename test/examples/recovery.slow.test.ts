import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { jest } from '@jest/globals'
import { tsrun } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)

const cwd = fileURLToPath(new URL('../../', import.meta.url))
const script = 'examples/recovery.ts'

/** Runs the example as one process; returns its output. */
async function run(...flags: string[]): Promise<string> {
  const args = ['--import', 'tsx', script, ...flags]
  return (await promisify(execFile)(process.execPath, args, { cwd })).stdout
}

describe('recovery.ts', () => {
  it.each([
    ['3', '10', '20', '30'],
    ['2', '1', '2', '3'],
  ])('loses one of %s ranks and admits it again, with the same result', async (...given) => {
    const [ranks, lose, back, steps] = given
    const output = await run('--ranks', ranks, '--lose', lose, '--return', back, '--steps', steps)
    const result = JSON.parse(/^result (.+)$/m.exec(output)![1]!) as Record<string, unknown>
    expect(result['replicas']).toEqual([Number(ranks), Number(ranks) - 1, Number(ranks)])
    expect(result['difference']).toBeLessThan(1e-5)
    expect(output.match(/^step 1: /gm)).toHaveLength(1)
    expect(output.match(/^computed by /gm)).toHaveLength(1)
    expect(output).toContain(`rank ${Number(ranks) - 1} is killed after step ${lose}`)
  })

  it('refuses to run under tsrun or with a single rank, and says why', async () => {
    const { code, stderr } = await tsrun(['--nproc', '1', '--no-summary', script], { cwd })
    expect(code).toBe(2)
    expect(stderr).toContain('Start it without tsrun')
    await expect(run('--ranks', '1')).rejects.toThrow('--ranks takes 2 or more')
  })
})
