import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  Adam,
  crossEntropy,
  earlyStopping,
  examples,
  findRate,
  latestCheckpoint,
  loadBackend,
  movingAverage,
  SGD,
  shardedMLP,
  tf,
  trainer,
  type AnyBatch,
  type Dataset,
  type FitOptions,
  type FitResult,
  type Loss,
  type Module,
  type Tensor,
  type MetricLog,
  type TrainerOptions,
} from '@tsrun/training'

jest.setTimeout(120_000)

const FEATURES = 5
const CLASSES = 3

/** Examples whose class is where their largest value is. */
const dataset: Dataset = {
  size: 50,
  features: FEATURES,
  classes: CLASSES,
  readInputs(indices, out) {
    indices.forEach((index, row) => {
      for (let i = 0; i < FEATURES; i++) out[row * FEATURES + i] = Math.sin(7 * index + 3 * i)
    })
  },
  readLabels(indices, out) {
    indices.forEach((index, row) => {
      out[row] = index % CLASSES
    })
  },
}

const recipe = shardedMLP({ layers: 2, inputs: FEATURES, hidden: 8, outputs: CLASSES, seed: 1 })

let folder: string
beforeAll(() => loadBackend('wasm'))
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-fit-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

/** What a script without types may pass. */
const given = (value: unknown) => value as never

const quiet = { progress: false } as const

/** Runs `fit` on every rank; the results, and the values of the parameters of rank 0. */
async function fitOn(
  size: number,
  given: FitOptions | (() => FitOptions),
  how: TrainerOptions = {},
  stages = 1,
): Promise<{ results: FitResult[]; values: Float32Array[] }> {
  const ranks = await runWorld({ size, seed: size }, async (group) => {
    const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
    const mesh =
      stages === 1 ? group : await initDeviceMesh({ dp: size / stages, pp: stages }, group)
    const run = await trainer(recipe, { optimizer, ...how, mesh })
    const options = typeof given === 'function' ? given() : given
    const result = await run.fit(dataset, { batch: 8, ...quiet, ...options })
    const values = await run.gathered(() =>
      run.parameters.map(({ value }) => value.dataSync<'float32'>().slice()),
    )
    run.dispose()
    optimizer.dispose()
    return { result, values }
  })
  return { results: ranks.map(({ result }) => result), values: ranks[0]!.values }
}

function batchAt(step: number, size = 8): AnyBatch {
  const indices = Int32Array.from({ length: size }, (_, i) => (step * size + i) % dataset.size)
  const inputs = new Float32Array(size * FEATURES)
  const labels = new Int32Array(size)
  dataset.readInputs(indices, inputs)
  dataset.readLabels(indices, labels)
  return { size, inputs, labels }
}

describe('fit', () => {
  it('has the losses of a loop of steps, on any number of ranks, also with an uneven last batch', async () => {
    const { results } = await fitOn(1, { epochs: 3 })
    // 50 examples: six batches of 8 and one of 2.
    expect(results[0]).toMatchObject({ steps: 21, end: 'complete' })
    const layouts: [number, TrainerOptions, number?][] = [
      [2, {}],
      [3, {}],
      [3, { zero: 2 }],
      [3, { zero: 3 }],
      [6, { microbatches: 2 }, 2],
    ]
    for (const [size, how, stages] of layouts) {
      const evaluate = { data: dataset, batch: 16 }
      const { results: ranks } = await fitOn(size, { epochs: 3, evaluate }, how, stages)
      for (const { losses } of ranks) {
        expect(losses).toEqual(ranks[0]!.losses)
        losses.forEach((loss, i) => {
          expect(Math.abs(loss - results[0]!.losses[i]!)).toBeLessThan(1e-5)
        })
      }
    }
  })

  it('goes on from a checkpoint with the same bits, also in the middle of an epoch', async () => {
    const whole = await fitOn(2, { steps: 17 })
    const save = { directory: folder, every: 4, keep: 2 }
    await fitOn(2, { steps: 10, save, resume: 'auto' })
    const rest = await fitOn(2, { steps: 17, save, resume: 'auto' })
    expect(rest.results[0]!.losses).toEqual(whole.results[0]!.losses.slice(10))
    expect(rest.values).toEqual(whole.values)
  })

  it.each([
    [2, 1],
    [4, 2],
  ])('trains sharded parameters to the same bits: %i ranks, %i stages', async (size, stages) => {
    const replicated = await fitOn(size, { steps: 5 }, {}, stages)
    const sharded = await fitOn(size, { steps: 5 }, { zero: 3 }, stages)
    expect(sharded.values).toEqual(replicated.values)
    expect(sharded.results).toEqual(replicated.results)
  })

  it('takes examples with fields of any shape', async () => {
    const [fromDataset] = (await fitOn(1, { epochs: 2, evaluate: { data: dataset } })).results
    const { inputs, labels } = batchAt(0, dataset.size) as Record<
      'inputs' | 'labels',
      Float32Array & Int32Array
    >
    const data = examples({ inputs: { values: inputs, shape: [FEATURES] }, labels })
    const found = await runWorld({ size: 1, seed: 1 }, async (group) => {
      const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
      const run = await trainer(recipe, { optimizer, mesh: group })
      return await run.fit(data, { batch: 8, epochs: 2, evaluate: { data }, ...quiet })
    })
    expect(found).toEqual([fromDataset])
  })

  it('goes on on another number of ranks, with sharded state', async () => {
    const whole = await fitOn(1, { steps: 12 })
    const save = { directory: folder }
    await fitOn(2, { steps: 7, save }, { zero: 3 })
    const rest = await fitOn(4, { steps: 12, save, resume: 'auto' }, { zero: 2 })
    rest.results[0]!.losses.forEach((loss, i) => {
      expect(Math.abs(loss - whole.results[0]!.losses[7 + i]!)).toBeLessThan(1e-5)
    })
  })

  it('takes functions of the step, and iterables, whose position is saved too', async () => {
    const run = await trainer(recipe, {
      optimizer: new SGD({ learningRate: 0.1 }),
      mesh: await alone(),
    })
    const first = await run.fit((step) => batchAt(step), { steps: 5, ...quiet })
    expect(first.losses).toHaveLength(5)
    const list = [0, 1, 2].map((step) => batchAt(step))
    const second = await run.fit(list, { epochs: 2, ...quiet })
    expect(second).toMatchObject({ steps: 11, end: 'complete' })
    run.dispose()
  })

  it('takes examples of the user as it takes a data set', async () => {
    const indices = Int32Array.from({ length: dataset.size }, (_, i) => i)
    const values = new Float32Array(dataset.size * FEATURES)
    const labels = new Int32Array(dataset.size)
    dataset.readInputs(indices, values)
    dataset.readLabels(indices, labels)
    const own = examples({ inputs: { values, shape: [FEATURES] }, labels })
    const options = { steps: 9, batch: 8, evaluate: { data: own, batch: 16 }, ...quiet }
    const optimizer = () => new SGD({ learningRate: 0.1, momentum: 0.9 })
    const run = await trainer(recipe, { optimizer: optimizer(), mesh: await alone() })
    const found = await run.fit(own, options)
    const again = await trainer(recipe, { optimizer: optimizer(), mesh: await alone() })
    const expected = await again.fit(dataset, {
      ...options,
      evaluate: { data: dataset, batch: 16 },
    })
    expect(found).toEqual(expected)
    await expect(run.fit(given({}), { steps: 20 })).rejects.toThrow('data is')
    run.dispose()
    again.dispose()
  })

  it('stops at a loss that is not a number, and keeps the checkpoints before it', async () => {
    const optimizer = new SGD({ learningRate: 0.1 })
    const run = await trainer(recipe, { optimizer, mesh: await alone() })
    const save = { directory: folder, every: 1 }
    const batch = (step: number) => {
      const { inputs, ...others } = batchAt(step)
      return { ...others, inputs: step < 2 ? inputs : new Float32Array(8 * FEATURES).fill(NaN) }
    }
    await expect(run.fit(batch, { steps: 9, save, ...quiet })).rejects.toMatchObject({
      code: 'ERR_TSR_LOSS_NAN',
      facts: { step: 3 },
    })
    run.dispose()
    expect(await latestCheckpoint(folder)).toMatchObject({ step: 2 })
  })

  it('says where it goes on from, how much is left, and what stopped it', async () => {
    const written = jest.spyOn(process.stdout, 'write').mockReturnValue(true)
    try {
      const save = { directory: folder, every: 4 }
      const stop = { onStep: ({ step }: { step: number }) => (step === 8 ? 'stop' : undefined) }
      const train = async (options: FitOptions) => {
        await fitOn(1, { save, resume: 'auto', progress: true, ...options })
      }
      await train({ steps: 4 })
      await train({ epochs: 2, callbacks: [stop] })
      await train({ steps: 8 })
      const text = written.mock.calls.map(([chunk]) => String(chunk)).join('')
      const path = join(folder, 'step-00000004')
      expect(text).toContain(`goes on after step 4 from ${path}\n`)
      expect(text).toContain('stopped by a callback after step 8\n')
      // two epochs of seven batches
      expect(text).toMatch(/step 8\/14 /)
      expect(text).toContain('step-00000008, where nothing is left to train\n')
    } finally {
      written.mockRestore()
    }
  })

  it('does not end with a function unless there are steps, and says so', async () => {
    const run = await trainer(recipe, {
      optimizer: new SGD({ learningRate: 0.1 }),
      mesh: await alone(),
    })
    await expect(run.fit((step) => batchAt(step), { epochs: 2, ...quiet })).rejects.toThrow(
      'steps is undefined; expected a number, as a function of the step has no epochs',
    )
    run.dispose()
  })

  it('begins anew beside farther checkpoints only if that is said', async () => {
    const save = { directory: folder, every: 4 }
    await fitOn(1, { steps: 8, save })
    await expect(fitOn(1, { steps: 4, save })).rejects.toThrow("'auto' to go on from it, false to")
    const { results } = await fitOn(1, { steps: 4, save, resume: false })
    expect(results[0]!.losses).toHaveLength(4)
  })

  it('evaluates, logs, and calls back with the same figures on every rank', async () => {
    const logged: string[] = []
    const log: MetricLog = {
      scalar: (name, _value, step) => {
        logged.push(`${name} ${step}`)
      },
      text: () => undefined,
      histogram: () => undefined,
      flush: () => Promise.resolve(),
      close: () => Promise.resolve(),
    }
    const seen: string[] = []
    const callback = {
      onStep: ({ step }: { step: number }) => {
        seen.push(`step ${step}`)
      },
      onEvaluate: ({ step, isBest }: { step: number; isBest: boolean }) => {
        seen.push(`evaluate ${step} ${isBest}`)
      },
      onEnd: ({ reason }: { reason: string }) => {
        seen.push(reason)
      },
    }
    const { results } = await fitOn(2, {
      steps: 4,
      evaluate: { data: dataset, every: 2, batch: 20 },
      log: [log],
      callbacks: [callback],
    })
    const [one, other] = results.map(({ evaluations }) => evaluations)
    expect(one).toEqual(other)
    expect(one!.map(({ step, examples }) => [step, examples])).toEqual([
      [2, 50],
      [4, 50],
    ])
    // Rank 0 writes; both ranks, which share this test's process, call back.
    expect(logged.filter((line) => line.startsWith('loss'))).toEqual(
      [1, 2, 3, 4].map((i) => `loss ${i}`),
    )
    expect(logged).toContain('evaluate/accuracy 4')
    expect(seen.filter((line) => line === 'complete')).toHaveLength(2)
    expect(seen.filter((line) => line === 'evaluate 2 true')).toHaveLength(2)
  })

  it('stops early, on all ranks at once', async () => {
    const { results } = await fitOn(2, () => ({
      epochs: 50,
      evaluate: { data: dataset, every: 1 },
      callbacks: [earlyStopping({ patience: 2, minDelta: 1 })],
    }))
    for (const { steps, end } of results) expect([steps, end]).toEqual([3, 'callback'])
  })

  it('saves and stops at SIGTERM, on all ranks after the same step', async () => {
    const code = process.exitCode
    const { results } = await fitOn(2, {
      steps: 100,
      save: { directory: folder },
      callbacks: [
        {
          onStep: ({ step }) => {
            if (step === 3) process.emit('SIGTERM', 'SIGTERM')
          },
        },
      ],
    })
    expect(process.exitCode).toBe(143)
    process.exitCode = code
    expect(results[0]!.end).toBe('SIGTERM')
    expect(results[0]!.steps).toBeLessThan(10)
    const rest = await fitOn(2, { steps: 12, save: { directory: folder }, resume: 'auto' })
    expect(rest.results[0]!.losses).toHaveLength(12 - results[0]!.steps)
  })

  it.each<[string, FitOptions, string]>([
    ['without a batch size', { batch: undefined as never }, 'batch is undefined'],
    ['that resumes from nowhere', { resume: 'auto' }, 'save: { directory }'],
    ['with an unknown option', { epoch: 3 } as never, 'unknown key "epoch"'],
    [
      'with a callback that it would not call',
      { callbacks: [given({ onstep: () => undefined })] },
      'onStep',
    ],
    ['that stops early without evaluations', { callbacks: [earlyStopping()] }, 'onEvaluate of a'],
    ['that keeps the best of none', { save: { directory: 'x', best: true } }, 'save.best needs'],
    ['with spent data', { evaluate: { data: [batchAt(0)].values() } }, 'only once'],
    ['that evaluates no data', { evaluate: { data: given({}) } }, 'evaluate.data is'],
  ])('refuses a call %s', async (_, options, problem) => {
    await expect(fitOn(1, options)).rejects.toThrow(problem)
  })
})

describe('a trainer', () => {
  const optimizer = new SGD({ learningRate: 0.1 })

  it('predicts outputs of inputs without labels', async () => {
    const run = await trainer(recipe, { optimizer, mesh: await alone() })
    const before = tf.memory().numTensors
    const rows = [
      [1, 2, 3, 4, 5],
      [-1, 0, 1, 0, -1],
    ]
    const scores = await run.predict(rows)
    const x = tf.tensor2d(rows)
    const same = await run.predict(x)
    const expected = tf.tidy(() => recipe.build().forward(x).dataSync())
    expect(scores.shape).toEqual([2, CLASSES])
    expect([...scores.dataSync()]).toEqual([...expected])
    expect([...same.dataSync()]).toEqual([...expected])
    tf.dispose([scores, same, x])
    run.dispose()
    expect(tf.memory().numTensors).toBeLessThanOrEqual(before)
  })

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
    ['a list of labels', () => ({ labels: [0, 1] }), 'a typed array such as a Float32Array'],
    ['64-bit integers', () => ({ labels: new BigInt64Array(8) }), 'for example an Int32Array'],
    ['the part of all replicas', () => ({ share: [0, 2] }), 'pass share: run.share'],
    [
      'bytes where floats belong',
      () => ({ inputs: new Uint8Array(40) }),
      'expected float32 [batch, 5]',
    ],
  ])('refuses a batch with %s', async (_, part, words) => {
    const run = await trainer(recipe, { optimizer, mesh: await alone() })
    const batch = { ...batchAt(0), ...part() } as AnyBatch
    await expect(run.step(batch)).rejects.toThrow(words)
    run.dispose()
  })

  it('trains on arrays of any floats', async () => {
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
  ])('refuses replicas with another %s', async (_, how, words) => {
    const errors = await runWorld({ size: 2 }, async (group) => {
      return await trainer(recipe, { mesh: group, ...how(group.rank) }).catch(String)
    })
    for (const error of errors) expect(error).toContain(words)
  })

  it.each<[string, (rank: number) => AnyBatch, string]>([
    ['other examples', (rank) => batchAt(rank), 'the batch of rank 1 is 8 examples'],
    ['another number of them', (rank) => batchAt(0, 8 + rank), 'the batch of rank 1 is 9 examples'],
  ])('refuses stages with %s', async (_, batch, words) => {
    const errors = await runWorld({ size: 2 }, async (group) => {
      const mesh = await initDeviceMesh({ dp: 1, pp: 2 }, group)
      const run = await trainer(recipe, { optimizer, mesh })
      return await run.step(batch(group.rank)).catch(String)
    })
    for (const error of errors) expect(error).toContain(words)
  })

  it('refuses a model of which nothing would be trained', async () => {
    const weights = tf.variable(tf.ones([FEATURES, CLASSES]))
    const model: Module = { parameters: [], forward: (x) => tf.matMul(x, weights) }
    await expect(trainer(model, { optimizer, mesh: await alone() })).rejects.toThrow(
      'createParameter(...), not by tf.variable(...)',
    )
    weights.dispose()
  })

  it('leaves no tensor in 200 steps, also when the loss throws', async () => {
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

  it('finds out whether a loss of the user is a mean or a sum', async () => {
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

  it.each([{}, { zero: 2 }, { zero: 3 }] as const)(
    'says which parameters got no gradient on any rank: %j',
    async (how) => {
      const errors = await runWorld({ size: 2 }, async (group) => {
        const used = recipe.build()
        const [extra] = recipe.build().parameters
        const model: Module = {
          parameters: [...used.parameters, { ...extra!, name: 'forgotten' }],
          forward: (x) => used.forward(x),
        }
        const optimizer = new SGD({ learningRate: 1 })
        const run = await trainer(model, { mesh: group, optimizer, ...how })
        return await run.step(batchAt(0)).catch((error: unknown) => error)
      })
      for (const error of errors) {
        expect(error).toMatchObject({
          code: 'ERR_TSR_UNUSED_PARAMETERS',
          message: expect.stringContaining('forgotten') as string,
        })
      }
    },
  )

  it('says which parameters got no gradient', async () => {
    const used = recipe.build()
    const [extra] = recipe.build().parameters
    const model: Module = {
      parameters: [...used.parameters, { ...extra!, name: 'forgotten' }],
      forward: (x) => used.forward(x),
    }
    const run = await trainer(model, {
      mesh: await alone(),
      optimizer: new SGD({ learningRate: 1 }),
    })
    await expect(run.step(batchAt(0))).rejects.toMatchObject({ code: 'ERR_TSR_UNUSED_PARAMETERS' })
  })

  it('keeps a moving average of the parameters, and puts it in their place for a while', async () => {
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

  it('finds a learning rate, and leaves everything as it was', async () => {
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

/** A group of this process alone, which needs no job. */
async function alone() {
  const [group] = await runWorld({ size: 1 }, (one) => Promise.resolve(one))
  return group!
}
