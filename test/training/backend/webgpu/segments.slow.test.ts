import { jest } from '@jest/globals'
import { killLeftovers, tsrun } from '../../../launcher/support/tsrun.ts'
import { resultIn } from '../../../launcher/support/script.ts'
import { fileURLToPath } from 'node:url'
import { runModule } from '../support/process.ts'
import { vulkan } from '../support/vulkan.ts'
import { needing } from '../../../needs.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

const checkout = fileURLToPath(new URL('../../../..', import.meta.url))

/** Runs a script on two ranks of a backend. */
async function run(backend: string, script: string, ...args: string[]): Promise<string> {
  const { code, stderr, stdout } = await tsrun(
    ['--nproc', '2', '--log-format', 'raw', '--no-summary', script, ...args],
    { cwd: checkout, env: { ...vulkan, TSRUN_BACKEND: backend } },
  )
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout
}

interface Trained {
  readonly losses: readonly number[]
  readonly leaked: number
}

type Report = { readonly backend: string } & Record<'gathered' | 'paired', Trained>

const { describe: withDriver } = needing(vulkan !== undefined, 'Vulkan driver')

withDriver('tensor parallel layers on webgpu', () => {
  it('reach the losses of cpu when they train in segments', async () => {
    const script = 'test/training/parallel/tensor/fixtures/losses-in-segments.mjs'
    const wanted = JSON.parse(await run('cpu', script)) as Report
    const found = JSON.parse(await run('webgpu', script)) as Report
    expect([wanted.backend, found.backend]).toEqual(['cpu', 'webgpu'])
    for (const form of ['gathered', 'paired'] as const) {
      expect(found[form].leaked).toBe(0)
      expect(found[form].losses).toHaveLength(5)
      found[form].losses.forEach((loss, i) => {
        expect(Math.abs(loss - wanted[form].losses[i]!)).toBeLessThan(1e-4)
      })
    }
  })

  it('train in examples/tensor-parallel.ts with small errors', async () => {
    const sizes = ['--steps', '3', '--batch', '16', '--width', '32']
    const result = resultIn(await run('webgpu', 'examples/tensor-parallel.ts', ...sizes))
    expect(result['gatheredError']).toBeLessThan(1e-4)
    expect(result['pairedError']).toBeLessThan(1e-4)
    expect(result).toMatchObject({ gatheredCollectives: 5, pairedCollectives: 3 })
  })

  it('are refused before any message if they are recorded in one pass, or are not a chain', async () => {
    // whatever else is used of a group would be a message
    const script = `
      await training.loadBackend()
      const { tf, parallelize, recordModule, recordSegments, columnParallel } = training
      const { GPT, gptPlan } = await import('@tsrun/models')
      const group = new Proxy({ name: 'two', rank: 0, size: 2, ranks: [0, 1] }, {
        get: (known, key) => known[key] ?? (() => { throw new Error('group.' + String(key)) }),
      })
      const options = { needsInputGradient: true }
      const attempt = async (run) => {
        try { await run() } catch (error) { console.log(error.message) }
      }
      const network = training.shardedMLP({ layers: 2, inputs: 4, hidden: 4 }).build()
      const columns = parallelize(network, { 'layers.0': columnParallel({ gather: 'replicated' }) }, group)
      await attempt(() => recordModule(columns, tf.ones([2, 4]), options))
      const sizes = { vocabulary: 8, block: 4, width: 8, heads: 2, layers: 1 }
      const gpt = (plan) => parallelize(new GPT(sizes), plan, group)
      const tokens = tf.zeros([1, 4], 'int32')
      const { wte, ...rest } = gptPlan()
      const { ln_f } = gptPlan({ sequence: true })
      for (const plan of [{ wte }, rest, { ln_f }]) {
        await attempt(() => recordSegments(gpt(plan), tokens, options))
      }`
    const { code, stdout, stderr } = await runModule(script, { ...vulkan, TSRUN_BACKEND: 'webgpu' })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const lines = stdout.trim().split('\n')
    const places = ['a forward or backward pass', 'wte', 'h.0', 'ln_f']
    expect(lines).toHaveLength(places.length)
    lines.forEach((line, i) => {
      expect(line).toContain(
        `cannot wait for a collective inside ${places[i]!}; in a chain of layers recordSegments`,
      )
      expect(line).toContain('ERR_TSR_BACKEND')
    })
  })

  it('get an error from TensorFlow.js if a custom gradient reads values', async () => {
    const script = `
      const { tf, record } = training
      await training.loadBackend()
      const twice = tf.customGrad((x) => ({
        value: tf.mul(x, 2),
        gradFunc: (dy) => tf.tensor(dy.dataSync().map((v) => 2 * v), dy.shape),
      }))
      const recording = record((x) => tf.square(twice(x)), tf.ones([2]), [], { needsInputGradient: true })
      recording.backward(tf.ones([2]), () => undefined)`
    const { code, stderr } = await runModule(script, { ...vulkan, TSRUN_BACKEND: 'webgpu' })
    expect(code).toBe(1)
    expect(stderr).toContain('ERR_TSR_SYNC_READ')
    expect(stderr).toContain('record each segment, and await the collective')
  })
})
