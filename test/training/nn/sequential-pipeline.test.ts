import { runWorld } from '@tsrun/distributed'
import {
  Conv2d,
  Flatten,
  GELU,
  Linear,
  loadBackend,
  MaxPool2d,
  pipeline,
  sequential,
  SGD,
  summedCrossEntropy,
  tf,
  type PipelineOptions,
} from '@tsrun/training'

beforeAll(() => loadBackend('wasm'))

const recipe = () =>
  sequential({
    conv: (name) => new Conv2d({ name, inputs: 1, outputs: 4, kernel: 3, activation: 'relu' }),
    pool: () => new MaxPool2d({ size: 2 }),
    deep: (name) => new Conv2d({ name, inputs: 4, outputs: 6, kernel: 2, bias: false }),
    gelu: () => new GELU(),
    flat: () => new Flatten(),
    head: (name) => new Linear({ name, inputs: 24, outputs: 3 }),
  })

const images = {
  size: 4,
  inputs: () =>
    tf.tensor4d(
      Float32Array.from({ length: 4 * 64 }, (_, i) => Math.sin(i)),
      [4, 8, 8, 1],
    ),
  labels: () => tf.tensor1d([0, 1, 2, 1], 'int32'),
}

async function losses(ranks: number, options: PipelineOptions): Promise<number[]> {
  const all = await runWorld({ size: ranks, seed: 2 }, async (group) => {
    const optimizer = new SGD({ learningRate: 0.05 })
    const settings = { microbatches: 2, optimizer, loss: summedCrossEntropy, ...options }
    const pipe = pipeline(recipe(), group, settings)
    const seen: number[] = []
    for (let step = 0; step < 5; step++) seen.push((await pipe.step(images)).loss)
    pipe.dispose()
    return seen
  })
  return all[0]!
}

it.each<[number, PipelineOptions]>([
  [2, { schedule: '1f1b' }],
  [3, { schedule: 'zb-h1', recompute: true }],
  // some have no parameters
  [6, { schedule: 'gpipe' }],
])('a sequential image model trains in a pipeline of %i ranks: %o', async (ranks, options) => {
  const wanted = await losses(1, {})
  const found = await losses(ranks, options)
  found.forEach((loss, i) => {
    expect(loss).toBeCloseTo(wanted[i]!, 5)
  })
  expect(found.at(-1)).toBeLessThan(0.8 * found[0]!)
})
