import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'
import { vulkan } from '../training/backend/support/vulkan.ts'

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

if (vulkan === undefined) {
  it('skipped: no Vulkan driver', () => {
    expect(vulkan).toBeUndefined()
  })
}

const withDriver = vulkan === undefined ? it.skip : it

withDriver('a pipeline on webgpu comes to what it comes to on wasm', async () => {
  const [device, host] = [await judged('webgpu'), await judged('wasm')]
  expect(device.accuracy).toBe(host.accuracy)
  expect(Math.abs(device.loss - host.loss)).toBeLessThan(2e-4 * host.loss)
})
