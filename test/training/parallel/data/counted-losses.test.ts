import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  crossEntropyWith,
  dataParallel,
  fullyShard,
  loadBackend,
  pipeline,
  SGD,
  shardedMLP,
  tf,
  wholeModel,
  type Pipeline,
  type PipelineOptions,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { parameterValues } from '../support/reference.ts'

beforeAll(() => loadBackend('wasm'))

const [EXAMPLES, INPUTS, CLASSES, STEPS] = [8, 3, 4, 3]
const recipe = shardedMLP({ layers: 2, inputs: INPUTS, hidden: 5, outputs: CLASSES })
const loss = crossEntropyWith({ ignoreIndex: -100 })
const options = (): PipelineOptions => ({ loss, optimizer: new SGD({ learningRate: 0.3 }) })

/** The first half has one label that counts, the second has three. */
function batch(from: number, to: number) {
  const size = to - from
  const labels = Int32Array.of(1, -100, -100, -100, 2, 0, 3, -100).slice(from, to)
  const inputs = Float32Array.from({ length: size * INPUTS }, (_, i) => Math.sin(from * INPUTS + i))
  return {
    size,
    inputs: () => tf.tensor2d(inputs, [size, INPUTS]),
    labels: () => tf.tensor1d(labels, 'int32'),
  }
}

const half = (rank: number) => batch((rank * EXAMPLES) / 2, ((rank + 1) * EXAMPLES) / 2)

async function alone() {
  const model = wholeModel(recipe.build(), options())
  for (let step = 0; step < STEPS; step++) await model.step(batch(0, EXAMPLES))
  return parameterValues(model)
}

type Train = (model: Pipeline, group: ProcessGroup) => Promise<void>
const token = { reduction: 'token' } as const

const ways: readonly (readonly [string, Train])[] = [
  [
    'step',
    async (model, group) => {
      const replica = await dataParallel(model, group, token)
      for (let step = 0; step < STEPS; step++) await model.step(half(group.rank))
      replica.dispose()
    },
  ],
  [
    'forwardBackward and gradients',
    async (model, group) => {
      const replica = await dataParallel(model, group, token)
      const optimizer = new SGD({ learningRate: 0.3 })
      for (let step = 0; step < STEPS; step++) {
        await model.forwardBackward(half(group.rank), replica.onGradient)
        optimizer.step(model.parameters, await replica.gradients(group.rank === 0 ? 1 : 3))
      }
      replica.dispose()
    },
  ],
]

it.each(ways)('manually combined replicas train like one process, by %s', async (_, train) => {
  const wanted = await alone()
  const models = {
    whole: () => wholeModel(recipe.build(), options()),
    stages: (group: ProcessGroup) => pipeline(recipe, group, { ...options(), microbatches: 2 }),
  }
  for (const [pp, make] of [
    [1, models.whole],
    [2, models.stages],
  ] as const) {
    await runWorld({ size: 2 * pp, seed: 2 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp }, world)
      const model = make(mesh.pp)
      await train(model, mesh.dp)
      const found = parameterValues(model)
      for (const [name, values] of Object.entries(found)) {
        values.forEach((value, i) => {
          expect(value).toBeCloseTo(wanted[name]![i]!, 5)
        })
      }
      model.dispose()
    })
  }
})

it('averaging over replicas refuses a counting loss with the reduction mean before any change', async () => {
  await runWorld({ size: 2, seed: 2 }, async (group) => {
    const model = wholeModel(recipe.build(), options())
    const refused = failure('ERR_TSR_ARGUMENT', /reduction is mean.*reduction: 'token'/)
    await expect(dataParallel(model, group)).rejects.toEqual(refused)
    await expect(fullyShard(model, group, { stage: 3 })).rejects.toEqual(refused)
    await expect(fullyShard(model, { shard: group })).rejects.toEqual(refused)
    const replica = await dataParallel(model, group, token)
    expect((await model.step(half(group.rank))).loss).toBeGreaterThan(0)
    replica.dispose()
    model.dispose()
  })
  await runWorld({ size: 1, seed: 2 }, async (group) => {
    const model = wholeModel(recipe.build(), options())
    const replica = await dataParallel(model, group)
    await model.step(half(0))
    replica.dispose()
    model.dispose()
  })
})
