import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { resultIn } from '../launcher/support/script.ts'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'
import { vulkan } from '../training/backend/support/vulkan.ts'
import { needing } from '../needs.ts'

jest.setTimeout(300_000)
afterEach(killLeftovers)

const cwd = fileURLToPath(new URL('../../', import.meta.url))

/** The line of the example that has accuracy and loss on the test images. */
async function judged(backend: string): Promise<{ accuracy: string; loss: number }> {
  const flags = ['--images', '32', '--batch', '32', '--microbatches', '2', '--epochs', '1']
  const run = await tsrun(['--nproc', '2', '--no-summary', 'examples/pipeline.ts', ...flags], {
    cwd,
    env: { ...vulkan, TSRUN_BACKEND: backend },
  })
  expect({ code: run.code, stderr: run.stderr }).toEqual({ code: 0, stderr: '' })
  const [, accuracy, loss] = /test accuracy (\S+) % {2}test loss (\S+)/.exec(run.stdout)!
  return { accuracy: accuracy!, loss: Number(loss) }
}

const { it: withDriver } = needing(vulkan !== undefined, 'Vulkan driver')

withDriver('a pipeline has the same accuracy and loss on webgpu as on wasm', async () => {
  const [device, host] = [await judged('webgpu'), await judged('wasm')]
  expect(device.accuracy).toBe(host.accuracy)
  expect(Math.abs(device.loss - host.loss)).toBeLessThan(2e-4 * host.loss)
})

interface Golden {
  readonly small: { readonly flags: Readonly<Record<string, number>>; readonly losses: number[] }
}

withDriver.each(['tensor-parallel.ts', 'pipeline-parallel.ts'])(
  "lecture/%s on webgpu has PyTorch's losses",
  async (script) => {
    const file = new URL('../fixtures/lecture/golden.json', import.meta.url)
    const { flags, losses } = (JSON.parse(readFileSync(file, 'utf8')) as Golden).small
    const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)])
    const job = [
      '--nproc',
      '2',
      '--log-format',
      'raw',
      '--no-summary',
      `examples/lecture/${script}`,
    ]
    const run = await tsrun([...job, ...args], { cwd, env: { ...vulkan, TSRUN_BACKEND: 'webgpu' } })
    expect({ code: run.code, stderr: run.stderr }).toEqual({ code: 0, stderr: '' })
    const found = (resultIn(run.stdout)['losses'] as unknown as number[][]).at(-1)!
    expect(found).toHaveLength(losses.length)
    found.forEach((loss, step) => {
      expect(Math.abs(loss / losses[step]! - 1)).toBeLessThan(1e-5)
    })
  },
)
