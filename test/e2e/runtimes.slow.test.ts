import { execFile } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { recordedLosses } from '../fixtures/launcher/losses.ts'
import { bin, cleanEnvironment, fixtures } from '../launcher/support/tsrun.ts'
import { needing } from '../needs.ts'

const run = promisify(execFile)

/** The launcher and its ranks run under the same runtime. */
const runtimes = { node: [], bun: [], deno: ['run', '--allow-all'] } as const

type Runtime = keyof typeof runtimes

function pathOf(runtime: Runtime): string | undefined {
  if (runtime === 'node') return process.execPath
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  return folders
    .map((folder) => join(folder, runtime))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK)
        return true
      } catch {
        return false
      }
    })
}

async function tsrunUnder(
  runtime: Runtime,
  args: readonly string[],
): Promise<{ stdout: string; stderr: string; code: number }> {
  const command = [...runtimes[runtime], bin, ...args]
  try {
    const env = { ...cleanEnvironment(), TSRUN_TRANSPORT: 'shared-memory' }
    return { ...(await run(pathOf(runtime)!, command, { cwd: fixtures, env })), code: 0 }
  } catch (error) {
    return error as { stdout: string; stderr: string; code: number }
  }
}

const trained = async (runtime: Runtime): Promise<unknown> => {
  const { code, stdout, stderr } = await tsrunUnder(runtime, ['--nproc', '2', 'trains.ts'])
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.any(String) })
  return JSON.parse(/^\[rank 0\] (\{.*\})$/m.exec(stdout)![1]!)
}

// test/browser compares browsers with the same losses.
it('this Node trains to the recorded losses of all runtimes, to the last bit', async () => {
  expect(await trained('node')).toEqual({ losses: recordedLosses })
})

describe.each(['bun', 'deno'] as const)('%s', (runtime) => {
  const { it } = needing(pathOf(runtime) !== undefined, runtime)

  it('trains to the recorded losses, to the last bit, over shared memory', async () => {
    expect(await trained(runtime)).toEqual({ losses: recordedLosses })
  })

  it('reports the error of a rank that throws, and stops the others', async () => {
    const args = ['--nproc', '2', 'typed-throws.ts']
    const { code, stderr } = await tsrunUnder(runtime, args)
    expect(code).toBe(1)
    expect(stderr).toContain('no area for 2 sides')
    expect(stderr).toContain('typed-throws.ts:6')
    // The time is wrong if the launcher and its ranks use different clocks.
    const [, seconds] = /first cause .*, after ([\d.]+) s$/m.exec(stderr)!
    expect(Number(seconds)).toBeGreaterThan(0.01)
    expect(Number(seconds)).toBeLessThan(60)
  })
})
