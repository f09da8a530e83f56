import * as tfjs from '@tensorflow/tfjs'
import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import { broadcastWeights, DistributedOptimizer, parallelizeLayers } from '@tsrun/layers'
import { GPT, gptPlan } from '@tsrun/models'
import {
  Adam,
  columnParallel,
  contextParallel,
  dataParallel,
  disposeModule,
  fullyShard,
  loadBackend,
  parallelize,
  pipeline,
  rowParallel,
  shardedMLP,
  tf,
  vocabParallel,
  vocabParallelCrossEntropy,
  zigzagPositions,
  type ParallelPlan,
} from '@tsrun/training'
import { errorOf } from '../../distributed/support/outcome.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

const sizes = { layers: 2, inputs: 4, hidden: 6, outputs: 2 }
const layersModel = () =>
  tfjs.sequential({ layers: [tfjs.layers.dense({ name: 'only', units: 2, inputShape: [4] })] })

/** What it throws, or rejects with. */
const refusalOf = (call: () => unknown) => errorOf(async () => await call())

const calls: [string, (group: ProcessGroup) => unknown][] = [
  ['pipeline', (group) => pipeline(shardedMLP(sizes), group)],
  ['dataParallel', (group) => dataParallel(shardedMLP(sizes).build(), group)],
  ['fullyShard', (group) => fullyShard(shardedMLP(sizes).build(), group)],
  ['parallelize', (group) => parallelize(shardedMLP(sizes).build(), {}, group)],
  ['parallelize of a recipe', (group) => parallelize(shardedMLP(sizes), {}, group)],
  ['parallelizeLayers', (group) => parallelizeLayers(layersModel(), {}, group)],
  ['DistributedOptimizer', (group) => new DistributedOptimizer(tf.train.sgd(0.1), group)],
  ['broadcastWeights', (group) => broadcastWeights(layersModel(), group)],
  ['vocabParallelCrossEntropy', (group) => vocabParallelCrossEntropy(group)],
  ['zigzagPositions', (group) => zigzagPositions(8, group)],
  ['contextParallel', (group) => contextParallel(new GPT({ layers: 1, block: 4 }), group)],
]

describe.each(calls)('%s', (_, call) => {
  it('asks for a group if it is missing', async () => {
    await runWorld({ size: 1 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 1, tp: 1 }, world)
      for (const [wrong, shown] of [
        [(mesh as Partial<typeof mesh & { dpp: ProcessGroup }>).dpp, 'undefined'],
        [mesh, 'a mesh of dp,tp'],
        [null, 'null'],
        ['dp', '"dp"'],
        [Promise.resolve(world), 'a promise'],
        [{}, 'an empty object'],
        [new Adam(), 'an instance of Adam'],
      ] as const) {
        const error = await refusalOf(() => call(wrong as ProcessGroup))
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        expect(error?.message).toContain(`group is ${shown}; expected a process group`)
      }
    })
  })
})

describe('fullyShard', () => {
  it('refuses misspelt axes of a mesh', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const missing = undefined as unknown as ProcessGroup
      for (const [groups, name] of [
        [{ shard: missing }, 'shard'],
        [{ shard: group, replicate: missing }, 'replicate'],
      ] as const) {
        const module = shardedMLP(sizes).build()
        const error = await errorOf(() => fullyShard(module, groups))
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT', facts: { name } })
        disposeModule(module)
      }
    })
  })
})

describe.each([
  ['dataParallel', dataParallel],
  ['fullyShard', fullyShard],
])('%s', (_, make) => {
  it.each([
    ['a model of tf.layers', layersModel, 'there is DistributedOptimizer'],
    ['a recipe', () => shardedMLP(sizes), 'build()'],
    ['nothing', () => undefined, 'a module'],
  ])('refuses %s', async (_name, build, expected) => {
    await runWorld({ size: 1 }, async (group) => {
      const error = await errorOf(() => make(build() as never, group))
      expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT', facts: { name: 'module' } })
      expect(error?.message).toContain(expected)
    })
  })

  it('refuses a module without trainable parameters, on all ranks', async () => {
    await runWorld({ size: 2, seed: 1 }, async (group) => {
      const module = shardedMLP(sizes).build()
      const error = await errorOf(() => make(module, group, { frozen: '**' }))
      expect(error?.message).toContain('module is one without a parameter that is trained')
      disposeModule(module)
    })
  })
})

describe('a DistributedOptimizer', () => {
  it.each([
    ['sgd', '"sgd"'],
    [new Adam(), 'Adam'],
    [undefined, 'undefined'],
  ])('refuses an optimizer that is not from tf.train: %p', async (inner, shown) => {
    await runWorld({ size: 1 }, async (group) => {
      const error = await refusalOf(() => new DistributedOptimizer(inner as never, group))
      expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT', facts: { name: 'inner' } })
      expect(error?.message).toMatch(new RegExp(`${shown}; expected an optimizer of tf\\.train`))
    })
  })
})

describe('a tensor parallel plan', () => {
  it.each<[string, unknown, string]>([
    [
      'a style function without its call',
      { 'layers.0': columnParallel },
      'the function columnParallel',
    ],
    ['a word', { 'layers.0': 'colwise' }, '"colwise"'],
    ['nothing', { 'layers.0': undefined }, 'undefined'],
    ['no plan', undefined, 'plan is undefined'],
  ])('is refused if it does not map names to styles: %s', async (_, plan, shown) => {
    await runWorld({ size: 1 }, async (group) => {
      const module = shardedMLP(sizes).build()
      for (const call of [
        () => parallelize(module, plan as ParallelPlan, group),
        () => parallelize(shardedMLP(sizes), plan as ParallelPlan, group),
        () => parallelizeLayers(layersModel(), plan as ParallelPlan, group),
      ]) {
        const error = await refusalOf(call)
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        expect(error?.message).toContain(shown)
      }
      disposeModule(module)
    })
  })
})

describe('options of a style', () => {
  it.each<[string, () => unknown]>([
    ['gathers', () => columnParallel({ gathers: 'replicated' } as object)],
    ['inputs', () => rowParallel({ inputs: 'replicated' } as object)],
    ['sequenced', () => vocabParallel({ sequenced: true } as object)],
    ['sequenced', () => gptPlan({ sequenced: true } as object)],
  ])('are refused if they are unknown: %s', async (name, make) => {
    const error = await refusalOf(make)
    expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
    expect(error?.message).toContain(`unknown key "${name}"`)
  })
})

describe('sharded weights of tf.layers', () => {
  it('are refused by broadcastWeights()', async () => {
    await runWorld({ size: 2, seed: 2 }, async (group) => {
      const model = parallelizeLayers(layersModel(), { only: columnParallel() }, group)
      const error = await errorOf(() => broadcastWeights(model, group))
      expect(error).toMatchObject({ code: 'ERR_TSR_REPLICA', facts: { rank: 1 } })
      expect(error?.message).toContain('of [4, 2], from 1 along axis 1')
      model.dispose()
    })
  })
})
