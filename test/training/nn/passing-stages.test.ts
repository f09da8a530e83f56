import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  createParameter,
  Dropout,
  init,
  Linear,
  loadBackend,
  moduleOf,
  sequential,
  SGD,
  tf,
  trainer,
  type Module,
  type TrainerOptions,
} from '@tsrun/training'

beforeAll(() => loadBackend('wasm'))

const middles: Record<string, (name: string) => Module> = {
  'a dropout alone': (name) => new Dropout({ name, rate: 0.3 }),
  'a dropout that drops nothing': (name) => new Dropout({ name, rate: 0 }),
  'the identity': () => moduleOf({}, (x) => x),
  'a reshaped view of its input': () => moduleOf({}, (x) => tf.reshape(x, x.shape)),
}

const batch = {
  size: 8,
  inputs: Float32Array.from({ length: 32 }, (_, i) => Math.sin(i)),
  labels: Int32Array.from({ length: 8 }, (_, i) => i % 3),
}

/** What evaluations and predictions give, and the number of tensors that they leave. */
async function figures(middle: string, ranks: number, options: TrainerOptions = {}) {
  const all = await runWorld({ size: ranks, seed: 1 }, async (group) => {
    const mesh = await initDeviceMesh({ pp: group.size }, group)
    const recipe = sequential({
      first: (name) => new Linear({ name, inputs: 4, outputs: 6 }),
      middle: middles[middle]!,
      last: (name) => new Linear({ name, inputs: 6, outputs: 3 }),
      end: (name) => new Dropout({ name, rate: 0.5 }),
    })
    const optimizer = new SGD({ learningRate: 0.1 })
    const run = await trainer(recipe, { mesh, optimizer, microbatches: 1, ...options })
    const x = tf.tensor2d(batch.inputs, [8, 4])
    const tensors: number[] = []
    const seen: number[] = []
    for (let time = 0; time < 3; time++) {
      seen.push((await run.evaluate(batch)).loss)
      const outputs = await run.predict(x)
      seen.push(...(await outputs.data()))
      outputs.dispose()
      await group.barrier()
      tensors.push(tf.memory().numTensors)
      await group.barrier()
    }
    x.dispose()
    run.dispose()
    return { seen, left: tensors[2]! - tensors[1]! }
  })
  return all
}

it.each(Object.keys(middles))(
  'a pipeline stage that is only %s evaluates and predicts like one process',
  async (middle) => {
    const [alone] = await figures(middle, 1)
    for (const [ranks, schedule] of [
      [4, '1f1b'],
      [2, 'zb-v'],
    ] as const) {
      for (const { seen, left } of await figures(middle, ranks, { schedule })) {
        expect(left).toBe(0)
        seen.forEach((value, i) => {
          expect(value).toBeCloseTo(alone!.seen[i]!, 5)
        })
      }
    }
    expect(alone!.left).toBe(0)
  },
)

it('a model that returns one of its parameters can predict twice', async () => {
  const [group] = await runWorld({ size: 1 }, (one) => Promise.resolve(one))
  const table = createParameter('table', [2, 3], init.uniform(1))
  const run = await trainer(
    moduleOf({ table }, (_, values) => values.table),
    { mesh: group! },
  )
  const x = tf.zeros([2, 4])
  const [first, second] = [await run.predict(x), await run.predict(x)]
  expect(second.dataSync()).toEqual(first.dataSync())
  expect([table.value.isDisposed, x.isDisposed]).toEqual([false, false])
  tf.dispose([x, first, second])
  run.dispose()
})
