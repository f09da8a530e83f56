import { readdirSync } from 'node:fs'
import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import { gpt, gptPlan } from '@tsrun/models'
import {
  Adam,
  columnParallel,
  dataParallel,
  loadBackend,
  loadCheckpoint,
  parallelize,
  partOfParameter,
  pipeline,
  rowParallel,
  saveCheckpoint,
  SGD,
  shardedMLP,
  type Part,
  type Pipeline,
} from '@tsrun/training'
import { exampleBatch, parameterValues, type Values } from '../parallel/support/reference.ts'
import { makeFolder, removeFolders } from './support/folder.ts'
import { countingOwner, cut } from './support/owner.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('wasm')
})

const model = shardedMLP({ layers: 4, inputs: 8, hidden: 12, outputs: 4 })
const other = shardedMLP({ layers: 4, inputs: 8, hidden: 12, outputs: 4, seed: 9 })
const batch = (step: number) => ({ size: 16, ...exampleBatch(step, 16, 8, 4) })

/** Steps [from, to) of a pipeline; the losses. */
async function train(pipe: Pipeline, from: number, to: number): Promise<number[]> {
  const losses: number[] = []
  for (let step = from; step < to; step++) losses.push((await pipe.step(batch(step))).loss)
  return losses
}

/** Trains in a layout of `size` stages and saves after two steps: the weights, and what came then. */
async function trainAndSave(folder: string, size: number) {
  const ranks = await runWorld({ size, seed: 3 }, async (world) => {
    const optimizer = new Adam({ learningRate: 0.01 })
    const pipe = pipeline(model, world, { optimizer, microbatches: 1 })
    await train(pipe, 0, 2)
    const weights = parameterValues(pipe)
    await saveCheckpoint(folder, { model: pipe, optimizer, step: 2, data: { seen: 32 } }, world)
    const losses = await train(pipe, 2, 5)
    const after = parameterValues(pipe)
    pipe.dispose()
    return { weights, losses, after }
  })
  return merge(ranks)
}

/** Loads into other weights in a layout of `size` stages, and trains on. */
async function loadAndTrain(folder: string, size: number) {
  const ranks = await runWorld({ size, seed: 4 }, async (world) => {
    const optimizer = new Adam({ learningRate: 0.01 })
    const pipe = pipeline(other, world, { optimizer, microbatches: 1 })
    const { step, data } = await loadCheckpoint(folder, { model: pipe, optimizer }, world)
    expect({ step, data }).toEqual({ step: 2, data: { seen: 32 } })
    const weights = parameterValues(pipe)
    const losses = await train(pipe, 2, 5)
    const after = parameterValues(pipe)
    pipe.dispose()
    return { weights, losses, after }
  })
  return merge(ranks)
}

function merge(ranks: { weights: Values; losses: number[]; after: Values }[]) {
  return {
    weights: Object.assign({}, ...ranks.map(({ weights }) => weights)) as Values,
    losses: ranks[0]!.losses,
    after: Object.assign({}, ...ranks.map(({ after }) => after)) as Values,
  }
}

describe('a checkpoint', () => {
  it.each([
    [1, 4],
    [2, 1],
    [2, 4],
    [3, 2],
    [4, 3],
  ])('of %i pipeline stages resumes with the same bits in %i stages', async (saved, loaded) => {
    const folder = makeFolder()
    const expected = await trainAndSave(folder, saved)
    expect(await loadAndTrain(folder, loaded)).toEqual(expected)
  })

  it('of 2 x 2 ranks resumes in a pipeline of 4 stages, and loads into 4 tensor parallel ranks', async () => {
    const folder = makeFolder()
    const saved = await runWorld({ size: 4, seed: 5 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 2 }, world)
      const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
      const pipe = pipeline(model, mesh.pp, { microbatches: 1 })
      const replica = await dataParallel(pipe, mesh.dp)
      const next = async (step: number) => {
        const { loss, gradients } = await pipe.forwardBackward(batch(step))
        for (const parameter of pipe.parameters) {
          replica.onGradient(parameter, gradients.get(parameter.name)!)
        }
        optimizer.step(pipe.parameters, await replica.gradients())
        return loss
      }
      await next(0)
      await next(1)
      await saveCheckpoint(folder, { model: pipe, optimizer, step: 2 }, world)
      const weights = parameterValues(pipe)
      const loss = await next(2)
      replica.dispose()
      pipe.dispose()
      return { weights, losses: [loss], after: {} }
    })
    const expected = merge(saved)
    // both replicas write, each half
    expect(readdirSync(`${folder}/step-00000002`)).toHaveLength(5)

    const four = await runWorld({ size: 4, seed: 6 }, async (world) => {
      const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
      const pipe = pipeline(other, world, { optimizer, microbatches: 1 })
      await loadCheckpoint(folder, { model: pipe, optimizer }, world)
      const weights = parameterValues(pipe)
      const losses = await train(pipe, 2, 3)
      pipe.dispose()
      return { weights, losses, after: {} }
    })
    expect(merge(four)).toEqual(expected)

    const plan = {
      'layers.0': columnParallel(),
      'layers.1': rowParallel(),
      'layers.2': columnParallel(),
      'layers.3': rowParallel(),
    }
    const shared = await runWorld({ size: 4, seed: 7 }, async (world) => {
      const module = parallelize(other.build(), plan, world)
      const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
      await loadCheckpoint(folder, { model: module, optimizer }, world)
      return parameterValues(module)
    })
    const column = shared[1]!['layers.0.weight']!
    const whole = expected.weights['layers.0.weight']!
    expect([...column]).toEqual([...whole].filter((_, i) => Math.floor((i % 12) / 3) === 1))
  })

  it('of tensor parallel ranks can be loaded by one rank', async () => {
    const folder = makeFolder()
    const plan = { 'layers.0': columnParallel(), 'layers.1': rowParallel() }
    await runWorld({ size: 2, seed: 8 }, async (world: ProcessGroup) => {
      const module = parallelize(model.build(), plan, world)
      await saveCheckpoint(folder, { model: module, step: 1 }, world)
    })
    const whole = other.build()
    await loadCheckpoint(folder, { model: whole })
    expect(parameterValues(whole)).toEqual(parameterValues(model.build()))
  })
})

describe('a checkpoint of a GPT', () => {
  const sizes = { vocabulary: 12, block: 6, layers: 2, heads: 4, width: 8, tied: true }
  const source = gpt({ ...sizes, seed: 3 })

  it('moves between tensor parallel ranks and a single rank, in both directions', async () => {
    const [shared, whole] = [makeFolder(), makeFolder()]
    await saveCheckpoint(whole, { model: source.build(), step: 1 })
    await runWorld({ size: 4, seed: 1 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, tp: 2 }, world)
      const module = parallelize(gpt(sizes).build(), gptPlan(), mesh.tp)
      await loadCheckpoint(whole, { model: module }, world)
      await saveCheckpoint(shared, { model: module, step: 1 }, world)
    })
    const model = gpt(sizes).build()
    await loadCheckpoint(shared, { model })
    expect(parameterValues(model)).toEqual(parameterValues(source.build()))
  })

  it('moves between stages that share a tied table and a single rank, in both directions', async () => {
    const [staged, whole] = [makeFolder(), makeFolder()]
    await saveCheckpoint(whole, { model: source.build(), step: 1 })
    await runWorld({ size: 2, seed: 1 }, async (world) => {
      const { rank } = world
      const model = gpt(sizes).slice(rank, rank + 1)
      await loadCheckpoint(whole, { model }, world)
      expect(parameterValues(model)).toEqual(parameterValues(source.slice(rank, rank + 1)))
    })
    await runWorld({ size: 2, seed: 2 }, async (world) => {
      const model = source.slice(world.rank, world.rank + 1)
      await saveCheckpoint(staged, { model, step: 1 }, world)
    })
    const model = gpt(sizes).build()
    await loadCheckpoint(staged, { model })
    expect(parameterValues(model)).toEqual(parameterValues(source.build()))
  })
})

describe('flat shards of parameters', () => {
  const shard = { shape: [6, 10], axis: 1, offset: 0 }
  const column = (offset: number, range?: readonly [number, number]): Part =>
    partOfParameter({ name: 'w', shape: [6, 5], shard: { ...shard, offset } }, range)
  const layouts: Record<string, Part[][]> = {
    whole: [[{ name: 'w', shape: [6, 10] }]],
    'flat ranges': [
      [{ name: 'w', shape: [6, 10], range: [0, 17] }],
      [{ name: 'w', shape: [6, 10], range: [17, 17] }],
      [{ name: 'w', shape: [6, 10], range: [17, 60] }],
    ],
    'boxes, and ranges of them': [
      [column(0, [0, 13])],
      [column(0, [13, 30])],
      [column(5, [0, 29])],
      [column(5, [29, 30])],
    ],
    'two copies': [[column(0), column(5)], [{ ...column(5) }]],
  }
  const pairs = Object.keys(layouts).flatMap((a) =>
    Object.keys(layouts).map((b) => [a, b] as const),
  )

  it.each(pairs)('can be saved as "%s" and loaded as "%s"', async (saved, loaded) => {
    const folder = makeFolder()
    const from = layouts[saved]!
    await runWorld({ size: from.length, seed: 1 }, async (world) => {
      const owner = countingOwner(from[world.rank]!)
      await saveCheckpoint(
        folder,
        { model: owner, optimizer: { ...owner, pieces: () => [] }, step: 0 },
        world,
      )
    })
    const to = layouts[loaded]!
    await runWorld({ size: to.length, seed: 2 }, async (world) => {
      const owner = countingOwner(to[world.rank]!, -1000)
      await loadCheckpoint(folder, { model: owner }, world)
      expect(owner.held).toEqual(to[world.rank]!.map((part) => cut(part)))
    })
  })
})
