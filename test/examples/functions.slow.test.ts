import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { cleanEnvironment, killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

const cwd = fileURLToPath(new URL('../../', import.meta.url))
const script = 'examples/functions.ts'

function resultOf(stdout: string): Record<string, unknown> {
  const [, json] = /^result (\{.*\})$/m.exec(stdout)!
  return JSON.parse(json!) as Record<string, unknown>
}

describe('functions.ts', () => {
  it('trains in three ways from one process, each with the losses of a single rank', async () => {
    const args = ['--import', 'tsx', script, '--ranks', '3', '--width', '48', '--batch', '36']
    const { stdout } = await promisify(execFile)(process.execPath, args, {
      cwd,
      env: cleanEnvironment(),
    })
    const result = resultOf(stdout)
    expect(result).toMatchObject({ ranks: 3, sum: 6, squares: [100, 121, 144] })
    for (const kind of ['data', 'pipeline', 'tensor']) {
      expect(result[`${kind}Error`]).toBeLessThan(1e-5)
    }
  })

  it('runs on rank 0 when it is started with tsrun', async () => {
    const job = ['--nproc', '2', '--log-format', 'raw', '--no-summary', script, '--ranks', '2']
    const { code, stdout, stderr } = await tsrun([...job, '--steps', '2'], { cwd })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(resultOf(stdout)).toMatchObject({ ranks: 2, sum: 3, squares: [100, 121] })
  })
})
