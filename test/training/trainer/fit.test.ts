import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  createParameter,
  dataLoader,
  earlyStopping,
  examples,
  init,
  latestCheckpoint,
  loadBackend,
  moduleOf,
  SGD,
  tf,
  trainer,
  type FitOptions,
  type FitResult,
  type MetricLog,
  type Tensor,
  type TrainerOptions,
} from '@tsrun/training'
import { failure } from '../parallel/support/failure.ts'
import {
  alone,
  batchAt,
  dataset,
  FEATURES,
  given,
  recipe,
  quiet,
} from './support/small-training.ts'

jest.setTimeout(120_000)

let folder: string
beforeAll(() => loadBackend('wasm'))
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-fit-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

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

  it('tells callbacks of checkpoints that are complete, each once', async () => {
    const saved: [number, boolean][] = []
    const callback = {
      onSave: ({ step, path }: { step: number; path: string }) => {
        saved.push([step, readdirSync(path).length > 0])
      },
    }
    await fitOn(1, { steps: 9, save: { directory: folder, every: 4 }, callbacks: [callback] })
    expect(saved).toEqual([
      [4, true],
      [8, true],
      [9, true],
    ])
  })

  it('refuses data that have no batches, or no more of them', async () => {
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
    ['saving on one rank', (rank) => (rank === 0 ? { save: { directory: folder } } : {}), 'save'],
  ])('refuses ranks with %s', async (_, options, words) => {
    const errors = await runWorld({ size: 2 }, async (group) => {
      const run = await trainer(recipe, { optimizer: new SGD({ learningRate: 0.1 }), mesh: group })
      const all = { steps: 4, batch: 8, ...quiet, ...options(group.rank) }
      return await run.fit(dataset, all).catch(String)
    })
    for (const error of errors) expect(error).toContain(words)
  })

  it('begins anew beside farther checkpoints only if that is said', async () => {
    const save = { directory: folder, every: 4 }
    await fitOn(1, { steps: 8, save })
    await expect(fitOn(1, { steps: 4, save })).rejects.toThrow("'auto' to go on from it, false to")
    const { results } = await fitOn(1, { steps: 4, save, resume: false })
    expect(results[0]!.losses).toHaveLength(4)
  })

  it('counts epochs and steps from where the call begins', async () => {
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

  it.each<[string, FitOptions]>([
    ['epochs', { epochs: 2 }],
    ['steps', { steps: 10 }],
  ])('that resumes a second call counts %s from the beginning of that call', async (_, how) => {
    const stopped = { onStep: ({ step }: { step: number }) => (step === 13 ? 'stop' : undefined) }
    const train = async (options: FitOptions) => {
      const optimizer = new SGD({ learningRate: 0.1 })
      const run = await trainer(recipe, { optimizer, mesh: await alone() })
      const common = { batch: 10, ...quiet }
      const first = { ...common, steps: 7, save: { directory: join(folder, 'first') } }
      const second = { ...common, ...how, save: { directory: join(folder, 'second') } }
      const results = [
        await run.fit(dataset, { ...first, resume: 'auto' }),
        await run.fit(dataset, { ...second, ...options, resume: 'auto' }),
      ]
      run.dispose()
      return results.map(({ losses, steps }) => [losses.length, steps])
    }
    expect(await train({ callbacks: [stopped] })).toEqual([
      [7, 7],
      [6, 13],
    ])
    expect(await train({})).toEqual([
      [0, 7],
      [4, 17],
    ])
    expect(await train({})).toEqual([
      [0, 7],
      [0, 17],
    ])
  })

  /** The loss is finite in every step; the gradient is infinite where `w` is 0. */
  const infinite = () =>
    moduleOf({ w: createParameter('w', [1], init.zeros) }, (x, { w }) =>
      tf.add(tf.mul(x, 0), tf.sqrt(w)),
    )
  const difference = (outputs: Tensor, labels: Tensor): Tensor => tf.mean(tf.sub(outputs, labels))
  const ones = { size: 2, inputs: Float32Array.of(1, 1), labels: Float32Array.of(1, 1) }

  it('keeps the last good checkpoint when gradients are infinite and the loss is not', async () => {
    const run = await trainer(infinite(), {
      optimizer: new SGD({ learningRate: 0.1 }),
      loss: difference,
      mesh: await alone(),
    })
    await run.save(folder)
    const save = { directory: folder, every: 1, keep: 1 }
    const refused = failure('ERR_TSR_NOT_FINITE', /^w is not finite: it has the value -?Infinity/)
    const options = { steps: 1, save, resume: false, ...quiet } as const
    await expect(run.fit(() => ones, options)).rejects.toEqual(refused)
    expect(await latestCheckpoint(folder)).toMatchObject({ step: 0 })
    await expect(run.save(folder)).rejects.toEqual(refused)
    await expect(run.save(folder, { background: true })).rejects.toEqual(refused)
    expect(readdirSync(folder)).toHaveLength(1)
    await run.save(folder, { finite: false })
    expect(await latestCheckpoint(folder)).toMatchObject({ step: 1 })
    run.dispose()
  })

  it.each([
    [{}, /^w is not finite/],
    [{ clip: 1 }, /^the norm of the gradients of step 1 is not finite/],
  ])('that saves nothing also refuses infinite gradients: %p', async (how, message) => {
    const optimizer = new SGD({ learningRate: 0.1 })
    const options = { optimizer, loss: difference, mesh: await alone(), ...how }
    const run = await trainer(infinite(), options)
    const refused = failure('ERR_TSR_NOT_FINITE', message)
    await expect(run.fit(() => ones, { steps: 1, ...quiet })).rejects.toEqual(refused)
    run.dispose()
  })

  it('still knows the best evaluation when it goes on', async () => {
    const save = { directory: folder, best: true }
    const train = async (steps: number) => {
      const isBest: boolean[] = []
      const seen = { onEvaluate: (info: { isBest: boolean }) => void isBest.push(info.isBest) }
      // Far too large from the second call on, so that nothing becomes better.
      const learningRate = (step: number) => (step < 7 ? 0.1 : 1e3)
      const evaluate = { data: dataset, every: 7 }
      const options = { steps, save, evaluate, resume: 'auto', callbacks: [seen] } as const
      await fitOn(1, options, { learningRate })
      return isBest
    }
    expect(await train(7)).toEqual([true])
    expect(await train(14)).toEqual([false])
    expect(await latestCheckpoint(join(folder, 'best'))).toMatchObject({ step: 7 })
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
    [
      'that stops early without evaluations',
      { callbacks: [earlyStopping()] },
      'which a callback needs',
    ],
    ['that keeps the best of none', { save: { directory: 'x', best: true } }, 'save.best needs'],
    ['with spent data', { evaluate: { data: [batchAt(0)].values() } }, 'only once'],
    ['that evaluates no data', { evaluate: { data: given({}) } }, 'evaluate.data is'],
  ])('refuses a call %s', async (_, options, problem) => {
    await expect(fitOn(1, options)).rejects.toThrow(problem)
  })
})
