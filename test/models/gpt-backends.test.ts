import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { loadBackend } from '@tsrun/training'
import { runModule } from '../training/backend/support/process.ts'
import { tensorflow } from '../training/backend/support/tensorflow.ts'
import { gradientsOf, livelyGpt } from '../training/nn/support/tokens.ts'
import { needing } from '../needs.ts'

jest.setTimeout(300_000)

const tokens = fileURLToPath(new URL('../training/nn/support/tokens.ts', import.meta.url))

type Gradients = Record<string, number[]>

async function gradientsOn(backend: 'cpu' | 'wasm' | 'tensorflow'): Promise<Gradients> {
  if (backend !== 'tensorflow') {
    await loadBackend(backend)
    return gradientsOf(livelyGpt())
  }
  const script = `
    const { loadBackend } = await import('@tsrun/training')
    const { gradientsOf, livelyGpt } = await import(${JSON.stringify(tokens)})
    await loadBackend()
    console.log(JSON.stringify(gradientsOf(livelyGpt())))`
  const { code, stdout, stderr } = await runModule(script, {
    ...tensorflow,
    TSRUN_BACKEND: backend,
  })
  expect({ backend, code, stderr }).toMatchObject({ code: 0 })
  return JSON.parse(stdout.trim().split('\n').at(-1)!) as Gradients
}

let expected: Gradients
beforeAll(async () => {
  expected = await gradientsOn('cpu')
})

async function expectGradientsOfCpu(name: 'wasm' | 'tensorflow'): Promise<void> {
  const found = await gradientsOn(name)
  expect(Object.keys(found).sort()).toEqual(Object.keys(expected).sort())
  for (const [parameter, values] of Object.entries(expected)) {
    const scale = Math.max(...values.map(Math.abs))
    expect(found[parameter]).toHaveLength(values.length)
    const errors = values.map(
      (value, i) => Math.abs(found[parameter]![i]! - value) / (scale + Math.abs(value)),
    )
    for (const error of errors) if (!(error < 2e-5)) expect(error).toBeLessThan(2e-5)
  }
}

it('a GPT has the same gradients on wasm as on cpu', () => expectGradientsOfCpu('wasm'))

const { it: itOnTensorFlow } = needing(
  tensorflow !== undefined,
  'TensorFlow (npx tsrun setup tensorflow)',
)

itOnTensorFlow('a GPT has the same gradients on tensorflow as on cpu', () =>
  expectGradientsOfCpu('tensorflow'),
)
