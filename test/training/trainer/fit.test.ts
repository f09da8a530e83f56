import { runWorld } from '@tsrun/distributed'
import {
  dataLoader,
  earlyStopping,
  examples,
  loadBackend,
  SGD,
  trainer,
  type FitOptions,
  type MetricLog,
  type TrainerOptions,
} from '@tsrun/training'
import { fitOn } from './support/fit-on.ts'
import {
  alone,
  batchAt,
  dataset,
  FEATURES,
  given,
  recipe,
  quiet,
} from './support/small-training.ts'

beforeAll(() => loadBackend('wasm'))

describe('fit', () => {
  it('has the losses of a loop of steps on any number of ranks, also with an uneven last batch', async () => {
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

  it.each([
    [2, 1],
    [4, 2],
  ])('trains sharded parameters to the same bits: %i ranks, %i stages', async (size, stages) => {
    const replicated = await fitOn(size, { steps: 5 }, {}, stages)
    const sharded = await fitOn(size, { steps: 5 }, { zero: 3 }, stages)
    expect(sharded.values).toEqual(replicated.values)
    expect(sharded.results).toEqual(replicated.results)
  })

  it('accepts examples with fields of any shape', async () => {
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

  it('accepts functions of the step, and iterables, whose position is saved', async () => {
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

  it('accepts custom examples like a data set', async () => {
    const indices = Int32Array.from({ length: dataset.size }, (_, i) => i)
    const values = new Float32Array(dataset.size * FEATURES)
    const labels = new Int32Array(dataset.size)
    dataset.fields.inputs.read(indices, values)
    dataset.fields.labels.read(indices, labels)
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

  it('refuses a function of the step without a number of steps', async () => {
    const run = await trainer(recipe, {
      optimizer: new SGD({ learningRate: 0.1 }),
      mesh: await alone(),
    })
    await expect(run.fit((step) => batchAt(step), { epochs: 2, ...quiet })).rejects.toThrow(
      'steps is undefined; expected a number, as a function of the step has no epochs',
    )
    run.dispose()
  })

  it('names the package that reads files if the data is a path', async () => {
    const run = await trainer(recipe, {
      optimizer: new SGD({ learningRate: 0.1 }),
      mesh: await alone(),
    })
    const path = 'houses.csv' as never
    const advice =
      'to read a file, `npm install @tsrun/data` and pass the result of its `readExamples`'
    await expect(run.fit(path, { batch: 2, ...quiet })).rejects.toThrow(advice)
    await expect(run.evaluate(path)).rejects.toThrow(advice)
    run.dispose()
  })

  it('refuses data without batches, or with too few of them', async () => {
    const run = await trainer(recipe, {
      optimizer: new SGD({ learningRate: 0.1 }),
      mesh: await alone(),
    })
    const once = [0, 1].map((step) => batchAt(step)).values()
    for (const data of [once, []]) {
      await expect(run.fit(data, { epochs: 2, ...quiet })).rejects.toThrow('without any batch')
    }
    run.dispose()
  })

  it.each<[string, (rank: number) => FitOptions, string]>([
    ['another seed', (rank) => ({ seed: rank }), 'seed 1, not seed 0'],
    ['another number of steps', (rank) => ({ steps: 4 + rank }), 'steps 5, not steps 4'],
    ['saving on one rank', (rank) => (rank === 0 ? { save: { directory: 'x' } } : {}), 'save'],
  ])('refuses ranks with %s', async (_, options, words) => {
    const errors = await runWorld({ size: 2 }, async (group) => {
      const run = await trainer(recipe, { optimizer: new SGD({ learningRate: 0.1 }), mesh: group })
      const all = { steps: 4, batch: 8, ...quiet, ...options(group.rank) }
      return await run.fit(dataset, all).catch(String)
    })
    for (const error of errors) expect(error).toContain(words)
  })

  it('counts epochs and steps from the start of the call', async () => {
    const optimizer = new SGD({ learningRate: 0.1 })
    const run = await trainer(recipe, { optimizer, mesh: await alone() })
    const fit = async (options: FitOptions) => {
      const { losses } = await run.fit(dataset, { batch: 10, ...quiet, ...options })
      return losses.length
    }
    expect(await fit({ epochs: 2 })).toBe(10)
    expect(await fit({ epochs: 2 })).toBe(10)
    expect(await fit({ steps: 4 })).toBe(4)
    expect(await fit({ steps: 4 })).toBe(4)
    expect(await fit({ epochs: 1, steps: 7 })).toBe(5)
    expect(run.steps).toBe(33)
    const loader = dataLoader(dataset, { batch: 10 })
    for (const expected of [10, 10]) {
      const { losses } = await run.fit(loader, { epochs: 2, ...quiet })
      expect(losses).toHaveLength(expected)
    }
    expect(await run.fit((step) => batchAt(step), { steps: 3, ...quiet })).toMatchObject({
      steps: 56,
      losses: { length: 3 },
    })
    run.dispose()
  })

  it('evaluates on an iterable that has a field next', async () => {
    const linked = { next: 0, [Symbol.iterator]: () => [batchAt(0)].values() }
    const { results } = await fitOn(1, { steps: 1, evaluate: { data: linked } })
    expect(results[0]).toMatchObject({ steps: 1, end: 'complete' })
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

  it.each<[string, FitOptions, string]>([
    ['without a batch size', { batch: undefined as never }, 'batch is undefined'],
    ['that resumes without a folder', { resume: 'auto' }, 'save: { directory }'],
    ['with an unknown option', { epoch: 3 } as never, 'unknown key "epoch"'],
    ['with an unknown callback', { callbacks: [given({ onstep: () => undefined })] }, 'onStep'],
    [
      'that stops early without evaluations',
      { callbacks: [earlyStopping()] },
      'which a callback needs',
    ],
    [
      'that keeps the best without evaluations',
      { save: { directory: 'x', best: true } },
      'save.best needs',
    ],
    [
      'that evaluates a one-time iterator',
      { evaluate: { data: [batchAt(0)].values() } },
      'only once',
    ],
    ['that evaluates without data', { evaluate: { data: given({}) } }, 'evaluate.data is'],
  ])('refuses a call %s', async (_, options, problem) => {
    await expect(fitOn(1, options)).rejects.toThrow(problem)
  })
})
