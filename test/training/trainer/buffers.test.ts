import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as tfjs from '@tensorflow/tfjs'
import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  Adam,
  BatchNorm,
  buffersOf,
  currentPass,
  findRate,
  inPass,
  Linear,
  loadBackend,
  moduleOf,
  movingAverage,
  ownerOfParameters,
  saveCheckpoint,
  Sequential,
  sequential,
  SGD,
  tf,
  trainer,
  type AnyBatch,
  type MeshShape,
  type Module,
  type Tensor,
  type Trainer,
  type TrainerOptions,
} from '@tsrun/training'
import { errorOf } from '../../distributed/support/outcome.ts'

const [FEATURES, EXAMPLES, CLASSES, STEPS] = [5, 12, 3, 3]

let folder: string
beforeAll(() => loadBackend('wasm'))
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-buffers-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

/** With the statistics of this rank alone: ranks of one process could not wait for each other. */
function norm(name: string, channels: number): Module & Pick<BatchNorm, 'buffers'> {
  const inner = new BatchNorm({ name, channels })
  const { parameters, buffers } = inner
  const forward = (x: Tensor): Tensor => {
    const pass = currentPass()
    const run = () => inner.forward(x)
    return pass === undefined ? run() : inPass({ ...pass, replicas: [] }, run)
  }
  return { parameters, buffers, usesPass: true, forward }
}

const modules = sequential({
  first: (name) => new Linear({ name, inputs: FEATURES, outputs: 6, activation: 'relu' }),
  norm: (name) => norm(name, 6),
  second: (name) => new Linear({ name, inputs: 6, outputs: 6, activation: 'relu' }),
  again: (name) => norm(name, 6),
  last: (name) => new Linear({ name, inputs: 6, outputs: CLASSES }),
})

function layersModel(): tfjs.LayersModel {
  const kernelInitializer = tfjs.initializers.heUniform({ seed: 3 })
  return tfjs.sequential({
    layers: [
      tfjs.layers.dense({ units: 6, inputShape: [FEATURES], kernelInitializer, trainable: false }),
      tfjs.layers.batchNormalization({ momentum: 0.7 }),
      tfjs.layers.dense({ units: CLASSES, kernelInitializer }),
    ],
  })
}

function batchAt(step: number, [index, count]: readonly [number, number]): AnyBatch {
  const size = EXAMPLES / count
  const first = index * size
  return {
    size,
    inputs: Float32Array.from(
      { length: size * FEATURES },
      (_, i) => 3 + 2 * Math.sin(7 * step + first * FEATURES + i),
    ),
    labels: Int32Array.from({ length: size }, (_, i) => (first + i + step) % CLASSES),
  }
}

async function start(
  model: Parameters<typeof trainer>[0],
  shape: MeshShape,
  group: ProcessGroup,
  options: TrainerOptions = {},
): Promise<Trainer> {
  const mesh = await initDeviceMesh({ dp: 1, shard: 1, pp: 1, cp: 1, tp: 1, ...shape }, group)
  const optimizer = new Adam({ learningRate: 0.05 })
  optimizers.push(optimizer)
  return await trainer(model, { mesh, optimizer, ...options })
}

const optimizers: Adam[] = []
afterEach(() => {
  for (const optimizer of optimizers.splice(0)) optimizer.dispose()
})

async function train(run: Trainer, from: number): Promise<number[]> {
  const losses: number[] = []
  for (let step = from; step < from + STEPS; step++) {
    losses.push((await run.step(batchAt(step, run.share))).loss)
  }
  return losses
}

/** A model of tf.layers gets its weights back, which with `zero: 3` no rank has. */
const dispose = async (run: Trainer): Promise<void> => {
  await run.gathered(() => {
    run.dispose()
  })
}

const buffersIn = ({ buffers }: Trainer): [string, number[]][] =>
  buffers.map(({ name, value }) => [name, [...value.dataSync()]])

const layouts: readonly [string, MeshShape, TrainerOptions][] = [
  ['one process', {}, {}],
  ['2 replicas', { dp: 2 }, {}],
  ['accumulation', { dp: 2 }, { accumulate: 2 }],
  ['ZeRO 1', { dp: 2 }, { zero: 1 }],
  ['ZeRO 2', { dp: 2 }, { zero: 2 }],
  ['ZeRO 3', { dp: 2 }, { zero: 3 }],
  ['replicas of shards', { dp: 2, shard: 2 }, {}],
]
const stages: typeof layouts = [
  ['a pipeline', { pp: 2 }, { microbatches: 2 }],
  ['replicas of a pipeline with ZeRO 2', { pp: 2, dp: 2 }, { microbatches: 2, zero: 2 }],
]

describe.each([
  ['a model of modules', () => modules, [...layouts, ...stages]],
  ['a model of tf.layers', layersModel, layouts],
] as const)('the buffers of %s', (_, build, all) => {
  it.each(all)('are saved, loaded, and the same on all replicas: %s', async (_, shape, options) => {
    const size = Object.values(shape).reduce((product, each) => product * each, 1)
    const ranks = await runWorld({ size, seed: 1 }, async (group) => {
      const run = await start(build(), shape, group, options)
      const fresh = buffersIn(run)
      await train(run, 0)
      const test = batchAt(99, run.share)
      const { loss } = await run.evaluate(test)
      await run.save(folder)
      const saved = buffersIn(run)
      expect(saved).not.toEqual(fresh)
      const next = await train(run, STEPS)
      const last = await run.evaluate(test)

      const resumed = await start(build(), shape, group, options)
      expect((await resumed.evaluate(test)).loss).not.toBe(loss)
      await resumed.load(folder)
      expect(buffersIn(resumed)).toEqual(saved)
      expect((await resumed.evaluate(test)).loss).toBe(loss)
      expect(await train(resumed, STEPS)).toEqual(next)
      expect(await resumed.evaluate(test)).toEqual(last)
      const result = { stage: run.layout.pp.rank, buffers: buffersIn(run) }
      expect(buffersIn(resumed)).toEqual(result.buffers)
      for (const each of [run, resumed]) await dispose(each)
      return result
    })
    for (const { stage, buffers } of ranks) {
      expect(buffers).toEqual(ranks.find((each) => each.stage === stage)!.buffers)
      expect(buffers.flatMap(([, values]) => values).every(Number.isFinite)).toBe(true)
    }
  })

  it('have the same values after loading in another layout', async () => {
    const test = batchAt(99, [0, 1])
    const [loss] = await runWorld({ size: 2, seed: 1 }, async (group) => {
      const run = await start(build(), { dp: 2 }, group, { zero: 3 })
      await train(run, 0)
      await run.save(folder)
      const evaluated = await run.evaluate(batchAt(99, run.share))
      await dispose(run)
      return evaluated.loss
    })
    await runWorld({ size: 1 }, async (group) => {
      const run = await start(build(), {}, group)
      await run.load(folder)
      expect((await run.evaluate(test)).loss).toBeCloseTo(loss!, 5)
      run.dispose()
    })
  })

  it('have the same values with and without recomputation', async () => {
    const after = async (options: TrainerOptions) => {
      const [buffers] = await runWorld({ size: 1 }, async (group) => {
        const optimizer = new SGD({ learningRate: 0.1 })
        const run = await start(build(), {}, group, { ...options, optimizer })
        await train(run, 0)
        const values = buffersIn(run)
        run.dispose()
        return values
      })
      return buffers!.flatMap(([, numbers]) => numbers)
    }
    const expected = await after({})
    for (const [i, value] of (await after({ recompute: true })).entries()) {
      expect(value).toBeCloseTo(expected[i]!, 5)
    }
  })

  it('are restored by findRate, and are left unchanged by movingAverage', async () => {
    await runWorld({ size: 2 }, async (group) => {
      const run = await start(build(), { dp: 2 }, group)
      await train(run, 0)
      const before = buffersIn(run)
      await findRate(run, (step) => batchAt(step, run.share), { steps: 4 })
      expect(buffersIn(run)).toEqual(before)
      const average = movingAverage({ decay: 0.5 })
      const { loss } = await run.step(batchAt(STEPS, run.share))
      const info = { step: 1, epoch: 0, learningRate: 0.05, loss, examples: EXAMPLES, waited: 0 }
      await average.onStep!(info, run)
      const now = buffersIn(run)
      expect(now).not.toEqual(before)
      expect(await average.during(run, () => Promise.resolve(buffersIn(run)))).toEqual(now)
      run.dispose()
    })
  })

  it('must not be missing in a checkpoint', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const run = await start(build(), {}, group)
      await train(run, 0)
      await saveCheckpoint(folder, { model: ownerOfParameters(run.parameters), step: 7 })
      const fresh = await trainer(build(), { mesh: group })
      const initial = buffersIn(fresh)
      const error = await errorOf(() => fresh.load(folder))
      expect(error).toMatchObject({ code: 'ERR_TSR_CHECKPOINT_MISSING' })
      expect(error!.facts['tensor']).toBe(run.buffers[0]!.name)
      expect(fresh.steps).toBe(0)
      expect(buffersIn(fresh)).toEqual(initial)
      for (const each of [run, fresh]) each.dispose()
    })
  })
})

it('a tf.layers model keeps the moving statistics of its training, and leaks no tensor', async () => {
  await runWorld({ size: 2 }, async (group) => {
    const model = layersModel()
    const [, normalization] = model.layers
    const run = await start(model, { dp: 2 }, group)
    await train(run, 0)
    /** Of both ranks, which are then between the same two steps. */
    const tensors = async (): Promise<number> => {
      await group.barrier()
      const { numTensors } = tf.memory()
      await group.barrier()
      return numTensors
    }
    const before = await tensors()
    await train(run, STEPS)
    expect(await tensors()).toBe(before)
    const trained = buffersIn(run).slice(-2)
    expect(trained.map(([name]) => name)).toEqual([
      'layers.1.moving_mean',
      'layers.1.moving_variance',
    ])
    run.dispose()
    const [, , mean, variance] = normalization!.getWeights()
    expect([mean, variance].map((each) => [...each!.dataSync()])).toEqual(
      trained.map(([, values]) => values),
    )
    const outputs = model.predict(tfjs.ones([1, FEATURES])) as tfjs.Tensor
    expect([...outputs.dataSync()].every(Number.isFinite)).toBe(true)
    outputs.dispose()
  })
})

it('a nested tf.layers model numbers weights with the same name', async () => {
  await runWorld({ size: 1 }, async (group) => {
    const inner = tfjs.sequential({
      layers: [
        tfjs.layers.dense({ units: 4, inputShape: [FEATURES] }),
        tfjs.layers.dense({ units: 4, trainable: false }),
      ],
    })
    const model = tfjs.sequential({ layers: [inner, tfjs.layers.dense({ units: CLASSES })] })
    const run = await start(model, {}, group)
    expect(run.parameters.map(({ name }) => name)).toEqual([
      ...['layers.0.kernel', 'layers.0.bias', 'layers.1.kernel', 'layers.1.bias'],
    ])
    expect(run.buffers.map(({ name }) => name)).toEqual(['layers.0.kernel_1', 'layers.0.bias_1'])
    await run.save(folder)
    await run.load(folder)
    run.dispose()
  })
})

it('buffers of nested modules are collected once each', () => {
  const [inner, outer] = [norm('inner', 2), norm('outer', 2)]
  const nested = new Sequential({ a: new Sequential({ inner }), outer })
  expect(buffersOf(nested)).toEqual([...inner.buffers, ...outer.buffers])
  const list = { ...moduleOf({}, (x) => x), layers: [nested, inner], buffers: outer.buffers }
  expect(new Set(buffersOf(list))).toEqual(new Set(buffersOf(nested)))
  expect(buffersOf(list)).toHaveLength(4)
  expect(() => new Sequential({ a: norm('same', 2), b: norm('same', 2) })).toThrow('two same.')
})
