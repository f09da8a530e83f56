import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  Adam,
  crossEntropy,
  findRate,
  loadBackend,
  movingAverage,
  SGD,
  tf,
  trainer,
  type AnyBatch,
  type Loss,
  type Module,
  type Tensor,
  type TrainerOptions,
} from '@tsrun/training'
import { failure } from '../parallel/support/failure.ts'
import { alone, batchAt, CLASSES, FEATURES, recipe, quiet } from './support/small-training.ts'

beforeAll(() => loadBackend('wasm'))

describe('a trainer', () => {
  const optimizer = new SGD({ learningRate: 0.1 })

  it.each([NaN, Infinity, -1, undefined])(
    'refuses a learning rate of %p, and names it',
    async (rate) => {
      const learningRate = (step: number) => (step === 1 ? rate! : 0.1)
      const run = await trainer(recipe, { optimizer, mesh: await alone(), learningRate })
      await run.step(batchAt(0))
      const refused = failure('ERR_TSR_ARGUMENT', /learningRate\(1\) is .*; expected a number >= 0/)
      await expect(run.step(batchAt(1))).rejects.toEqual(refused)
      run.dispose()
    },
  )

  const disposed = () => {
    const tensor = tf.zeros([8, FEATURES])
    tensor.dispose()
    return tensor
  }
  it.each<[string, () => Partial<Record<keyof AnyBatch, unknown>>, string]>([
    [
      'a disposed tensor',
      () => ({ inputs: disposed() }),
      'batch.inputs is a tensor that was disposed',
    ],
    ['labels of the wrong length', () => ({ labels: new Int32Array(7) }), '8 examples'],
    ['a list of labels', () => ({ labels: [0, 1] }), 'a typed array such as a Float32Array'],
    ['64-bit integers', () => ({ labels: new BigInt64Array(8) }), 'for example an Int32Array'],
    ['another share than run.share', () => ({ share: [0, 2] }), 'pass share: run.share'],
    [
      'bytes in place of floats',
      () => ({ inputs: new Uint8Array(40) }),
      'expected float32 [batch, 5]',
    ],
    [
      'labels of 32 unsigned bits',
      () => ({ labels: Uint32Array.of(0, 0, 0, 0, 0, 0, 0, 2 ** 32 - 100) }),
      'batch.labels is 4294967196 at index 7; expected a whole number of 32 bits there',
    ],
    [
      'inputs that are infinite as float32',
      () => ({ inputs: new Float64Array(40).fill(1e300) }),
      'batch.inputs is 1e+300 at index 0; expected a finite number of 32 bits there',
    ],
  ])('refuses a batch with %s', async (_, part, words) => {
    const run = await trainer(recipe, { optimizer, mesh: await alone() })
    const batch = { ...batchAt(0), ...part() } as AnyBatch
    await expect(run.step(batch)).rejects.toThrow(words)
    run.dispose()
  })

  it('trains on arrays of any float type', async () => {
    const losses: number[] = []
    for (const kind of [Float32Array, Float64Array]) {
      const run = await trainer(recipe, { optimizer, mesh: await alone() })
      const batch = batchAt(0)
      const inputs = kind.from(batch.inputs as Float32Array)
      losses.push((await run.step({ ...batch, inputs })).loss)
      run.dispose()
    }
    expect(losses[1]).toBe(losses[0])
  })

  it.each<[string, (outputs: Tensor) => unknown, string]>([
    ['a vector', (outputs) => tf.sum(outputs, 1), 'a tensor of shape [8]'],
    ['a number', () => 3, 'the result of the loss is 3'],
    ['a promise', (outputs) => Promise.resolve(tf.sum(outputs)), 'not a promise'],
  ])('refuses a loss that returns %s', async (_, compute, words) => {
    for (const reduction of ['mean', 'sum', undefined] as const) {
      const loss = Object.assign(compute, { reduction }) as Loss
      const run = await trainer(recipe, { optimizer, loss, mesh: await alone() })
      await expect(run.step(batchAt(0))).rejects.toThrow(words)
      run.dispose()
    }
  })

  it.each<[string, (rank: number) => TrainerOptions, string]>([
    ['rate', (rank) => ({ optimizer: new SGD({ learningRate: 1 + rank }) }), 'learningRate 2'],
    ['optimizer', (rank) => ({ optimizer: rank === 0 ? optimizer : new Adam() }), 'Adam'],
    ['loss', (rank) => (rank === 0 ? {} : { loss: crossEntropy }), 'loss crossEntropy'],
    ['clip', (rank) => (rank === 0 ? {} : { clip: 1 }), 'clip maxNorm 1'],
  ])('refuses replicas that differ in %s', async (_, how, words) => {
    const errors = await runWorld({ size: 2 }, async (group) => {
      return await trainer(recipe, { mesh: group, ...how(group.rank) }).catch(String)
    })
    for (const error of errors) expect(error).toContain(words)
  })

  it.each<[string, (rank: number) => AnyBatch, string]>([
    ['other examples', (rank) => batchAt(rank), 'the batch of rank 1 is one with the inputs'],
    [
      'another number of examples',
      (rank) => batchAt(0, 8 + rank),
      'the batch of rank 1 is 9 examples',
    ],
  ])('refuses stages with %s', async (_, batch, words) => {
    const errors = await runWorld({ size: 2 }, async (group) => {
      const mesh = await initDeviceMesh({ dp: 1, pp: 2 }, group)
      const run = await trainer(recipe, { optimizer, mesh })
      return await run.step(batch(group.rank)).catch(String)
    })
    for (const error of errors) expect(error).toContain(words)
  })

  it.each<[string, () => Partial<AnyBatch>]>([
    ['an array', () => ({ size: 0, inputs: new Float32Array(0), labels: new Int32Array(0) })],
    ['a tensor', () => ({ inputs: tf.zeros([0, FEATURES]), labels: tf.zeros([0], 'int32') })],
  ])('accepts one replica without examples: %s', async (_, empty) => {
    for (const zero of [0, 2] as const) {
      const losses = await runWorld({ size: 2 }, async (mesh) => {
        const run = await trainer(recipe, { mesh, optimizer, zero })
        const { size, ...batch } = batchAt(0)
        const part = mesh.rank === 0 ? { size, ...batch } : { ...batch, ...empty() }
        return await run.step(part as AnyBatch)
      })
      expect(losses[0]!.examples).toBe(8)
      expect(losses[1]!.loss).toBe(losses[0]!.loss)
    }
  })

  it('sums any number of values over the replicas', async () => {
    const sums = await runWorld({ size: 2 }, async (mesh) => {
      const run = await trainer(recipe, { mesh })
      return await run.sum(1, 2, 3, 4, 5, 10 * mesh.rank)
    })
    expect(sums).toEqual([1, 2].map(() => [2, 4, 6, 8, 10, 10]))
  })

  it('uses a given mesh as its layout', async () => {
    const groups = await runWorld({ size: 4 }, async (group) => {
      const mesh = await initDeviceMesh({ pp: 2, dp: 2 }, group)
      const run = await trainer(recipe, { mesh, microbatches: 2 })
      return [run.layout.pp.ranks, mesh.pp.ranks, run.layout.dp.ranks, mesh.dp.ranks]
    })
    for (const [pp, wantedStages, dp, wantedReplicas] of groups) {
      expect(pp).toEqual(wantedStages)
      expect(dp).toEqual(wantedReplicas)
    }
  })

  it('refuses a model without trainable parameters', async () => {
    const weights = tf.variable(tf.ones([FEATURES, CLASSES]))
    const model: Module = { parameters: [], forward: (x) => tf.matMul(x, weights) }
    await expect(trainer(model, { optimizer, mesh: await alone() })).rejects.toThrow(
      'createParameter(...), not by tf.variable(...)',
    )
    weights.dispose()
  })

  it('leaks no tensor in 200 steps, also when the loss throws', async () => {
    let isBroken = false
    const compute = (outputs: Tensor, labels: Tensor): Tensor => {
      if (isBroken) throw new Error('no loss today')
      return tf.sum(tf.square(tf.sub(tf.sum(outputs, 1), labels)))
    }
    const loss: Loss = Object.assign(compute, { reduction: 'sum' as const })
    const optimizer = new SGD({ learningRate: 1e-4, momentum: 0.9 })
    const run = await trainer(recipe, { mesh: await alone(), optimizer, loss })
    await run.step(batchAt(0))
    const before = tf.memory().numTensors
    for (let step = 1; step < 200; step++) await run.step(batchAt(step))
    expect(tf.memory().numTensors).toBe(before)
    isBroken = true
    for (let step = 0; step < 20; step++) {
      await expect(run.step(batchAt(step))).rejects.toThrow('no loss today')
    }
    expect(tf.memory().numTensors).toBe(before)
    run.dispose()
  })

  it('detects whether a custom loss is a mean or a sum', async () => {
    const of = async (loss: Loss): Promise<number[]> => {
      const optimizer = new SGD({ learningRate: 0.05 })
      const how = { mesh: await alone(), optimizer, loss, accumulate: 2 }
      const run = await trainer(recipe, how)
      const losses = [(await run.step(batchAt(0))).loss, (await run.step(batchAt(1))).loss]
      run.dispose()
      return losses
    }
    const squares = (outputs: Tensor, labels: Tensor): Tensor =>
      tf.square(tf.sub(outputs, tf.oneHot(labels, CLASSES)))
    const mean = await of((outputs, labels) => tf.mean(tf.sum(squares(outputs, labels), 1)))
    const sum = await of((outputs, labels) => tf.sum(squares(outputs, labels)))
    mean.forEach((loss, i) => {
      expect(Math.abs(loss - sum[i]!)).toBeLessThan(1e-5)
    })
    await expect(
      of((outputs, labels) => tf.square(tf.sum(squares(outputs, labels)))),
    ).rejects.toThrow('the mean or the sum over the examples')
  })

  it('keeps a moving average of the parameters, and uses it temporarily in their place', async () => {
    const average = movingAverage({ decay: 0.5 })
    const run = await trainer(recipe, {
      mesh: await alone(),
      optimizer: new SGD({ learningRate: 0.5 }),
    })
    const name = run.parameters[0]!.name
    const seen: number[] = []
    const watch = {
      onStep: () => {
        seen.push(run.parameters[0]!.value.dataSync()[0]!)
      },
    }
    await run.fit((step) => batchAt(step), { steps: 3, ...quiet, callbacks: [average, watch] })
    const expected = 0.5 * (0.5 * seen[0]! + 0.5 * seen[1]!) + 0.5 * seen[2]!
    await average.during(run, () => {
      expect(run.parameters.find((each) => each.name === name)!.value.dataSync()[0]).toBeCloseTo(
        expected,
        5,
      )
      return Promise.resolve()
    })
    expect(run.parameters[0]!.value.dataSync()[0]).toBe(seen[2])
    run.dispose()
  })

  it('finds a learning rate without changing its own state', async () => {
    const optimizer = new SGD({ learningRate: 0.3, momentum: 0.9 })
    const run = await trainer(recipe, { mesh: await alone(), optimizer })
    await run.step(batchAt(0))
    const before = run.parameters.map(({ value }) => value.dataSync().slice())
    const { suggestion, curve } = await findRate(run, (step) => batchAt(step), {
      steps: 30,
      to: 10,
    })
    expect(curve.length).toBeGreaterThan(5)
    expect(suggestion).toBeGreaterThan(1e-7)
    expect(suggestion).toBeLessThan(1)
    expect(run.steps).toBe(1)
    expect(optimizer.learningRate).toBe(0.3)
    expect(run.parameters.map(({ value }) => value.dataSync().slice())).toEqual(before)
    run.dispose()
  })
})
