import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  Adam,
  dataLoader,
  loadBackend,
  SGD,
  subset,
  tf,
  trainer,
  type AnyBatch,
  type FitData,
  type FitOptions,
  type Optimizer,
  type Tensor,
  type TrainerOptions,
} from '@tsrun/training'
import { alone, batchAt, dataset, quiet, recipe } from './support/small-training.ts'

let folder: string
beforeAll(() => loadBackend('wasm'))
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-agreement-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

const learningRate = 0.1

/** What each rank's trainer, or a step of it, throws. */
async function failures(
  size: number,
  act: (group: ProcessGroup) => Promise<unknown>,
): Promise<string[]> {
  return await runWorld({ size }, async (group) => await act(group).then(() => 'none', String))
}

describe('the trainers of all ranks', () => {
  it.each<[string, (rank: number) => Optimizer, string]>([
    ['momentum', (rank) => new SGD({ learningRate, momentum: rank / 2 }), 'momentum 0.5'],
    ['betas', (rank) => new Adam({ betas: [0.9, rank === 0 ? 0.999 : 0.99] }), '[0.9, 0.99]'],
  ])('refuse optimizers that differ in %s', async (_, optimizer, words) => {
    const errors = await failures(2, (group) =>
      trainer(recipe, { optimizer: optimizer(group.rank), mesh: group }),
    )
    for (const error of errors) expect(error).toContain(words)
  })

  it.each([{ pp: 2 }, { tp: 2 }])('refuse different frozen parameters, with %j', async (shape) => {
    const errors = await failures(2, async (group) => {
      const mesh = await initDeviceMesh(shape as { pp: number }, group)
      const optimizer = new SGD({ learningRate })
      const frozen = group.rank === 0 ? {} : { frozen: '**.bias' }
      return await trainer(recipe, { optimizer, mesh, plan: {}, ...frozen })
    })
    for (const error of errors) expect(error).toContain('frozen **.bias, not frozen undefined')
  })

  it('leak no tensor of a model that they refuse', async () => {
    const mesh = await alone()
    const before = tf.memory().numTensors
    await expect(trainer(recipe, { mesh, frozen: 'layers.9.*' })).rejects.toThrow('frozen is')
    expect(tf.memory().numTensors).toBe(before)
  })

  it('refuse different tensors on ranks that share layers', async () => {
    const plan = {}
    const errors = await failures(2, async (group) => {
      const mesh = await initDeviceMesh({ tp: 2 }, group)
      const run = await trainer(recipe, { optimizer: new SGD({ learningRate }), mesh, plan })
      const batch = batchAt(0)
      const inputs = Float32Array.from(batch.inputs as Float32Array)
      inputs[5] = group.rank
      // What comes before such values counts, too.
      inputs[6] = NaN
      inputs[7] = -1e30
      const x = tf.tensor2d(inputs, [8, 5])
      return await run.step({ ...batch, inputs: x }).finally(() => {
        x.dispose()
      })
    })
    for (const error of errors) expect(error).toContain('which has the same replica')
  })

  it('freeze parameters of one stage of a pipeline, and refuse names that no stage has', async () => {
    const train = (frozen: TrainerOptions['frozen']) =>
      runWorld({ size: 2 }, async (group) => {
        const mesh = await initDeviceMesh({ pp: 2 }, group)
        const optimizer = new SGD({ learningRate })
        const run = await trainer(recipe, { optimizer, mesh, ...(frozen && { frozen }) })
        const values = () => run.parameters.map(({ value }) => [...value.dataSync()])
        const before = values()
        await run.step(batchAt(0))
        const after = values()
        const changed = run.parameters.filter((_, i) => before[i]!.join() !== after[i]!.join())
        run.dispose()
        return changed.map(({ name }) => name)
      })
    const all = (await train(undefined)).flat()
    const [first] = await train('layers.1.*')
    expect(all).toEqual(['layers.0.weight', 'layers.0.bias', 'layers.1.weight', 'layers.1.bias'])
    expect((await train('layers.1.*')).flat()).toEqual(first)
    expect(first).toEqual(all.slice(0, 2))
    expect((await train('**.bias')).flat()).toEqual(all.filter((name) => name.includes('weight')))
    await expect(train('layers.9.*')).rejects.toThrow('frozen is layers.9.*')
    await expect(train('**')).rejects.toThrow('frozen is all parameters')
  })
})

describe('a step that throws', () => {
  it.each([{ zero: 0 }, { zero: 2 }, { zero: 3 }] as const)(
    'leaves no part of a gradient for the next step (%j)',
    async ({ zero }) => {
      const values = await runWorld({ size: 2 }, async (group) => {
        const loss = Object.assign(
          (outputs: Tensor, labels: Tensor) => {
            if (labels.dataSync().includes(9)) throw new Error('on purpose')
            return tf.mean(tf.mul(outputs, tf.cast(tf.expandDims(labels, -1), 'float32')))
          },
          { reduction: 'mean' as const },
        )
        const train = async (fails: boolean) => {
          const optimizer = new SGD({ learningRate })
          const run = await trainer(recipe, { optimizer, mesh: group, accumulate: 4, loss, zero })
          if (fails) {
            // In the third of four parts.
            const labels = Int32Array.of(1, 1, 1, 1, 9, 9, 1, 1)
            const failed = run.step({ ...batchAt(0), labels })
            await expect(failed).rejects.toThrow('on purpose')
          }
          await run.step(batchAt(group.rank))
          const result = await run.gathered(() => [...run.parameters.at(-1)!.value.dataSync()])
          run.dispose()
          return result
        }
        return { after: await train(true), expected: await train(false) }
      })
      for (const { after, expected } of values) expect(after).toEqual(expected)
    },
  )
})

it('a step is refused after the previous step threw on only one rank', async () => {
  const errors = await failures(2, async (group) => {
    const run = await trainer(recipe, { optimizer: new SGD({ learningRate }), mesh: group })
    await run.step(batchAt(group.rank))
    const labels = new Float32Array(3)
    if (group.rank === 1) await run.step({ ...batchAt(1), labels }).catch(() => undefined)
    if (group.rank === 1) {
      const broken = () => {
        throw new Error('on purpose')
      }
      await run.step({ size: 8, inputs: broken, labels: broken }).catch(() => undefined)
    }
    return await run.step(batchAt(2 + group.rank))
  })
  for (const error of errors) expect(error).toContain('a step has failed on some ranks only')
})

const sized = (count: number) =>
  subset(
    dataset,
    Array.from({ length: count }, (_, i) => i),
  )

const some = (count: number): AnyBatch[] =>
  Array.from({ length: count }, (_, step) => batchAt(step))

describe('evaluate', () => {
  it('refuses data sets of different sizes', async () => {
    const errors = await failures(2, async (group) => {
      const run = await trainer(recipe, { mesh: group })
      return await run.evaluate(sized(12 + group.rank))
    })
    for (const error of errors) expect(error).toContain('data 13, not data 12')
  })

  it.each([
    ['a list', some, 'data 2, not data 1'],
    ['a generator', (count: number) => some(count).values(), 'unlike that of 1 of 2 ranks'],
  ])('refuses %s that is shorter on one rank of sharded replicas', async (_, data, words) => {
    const errors = await failures(2, async (group) => {
      const optimizer = new SGD({ learningRate })
      const run = await trainer(recipe, { mesh: group, zero: 3, optimizer })
      return await run.evaluate(data(1 + group.rank))
    })
    for (const error of errors) expect(error).toContain(words)
  })

  it('adds up different numbers of batches of plain replicas', async () => {
    const found = await runWorld({ size: 2 }, async (group) => {
      const run = await trainer(recipe, { mesh: group })
      return await run.evaluate(some(1 + group.rank))
    })
    for (const { examples } of found) expect(examples).toBe(24)
  })
})

describe('fit', () => {
  const fitAlone = async (data: FitData, options: FitOptions) => {
    const optimizer = new SGD({ learningRate })
    const run = await trainer(recipe, { optimizer, mesh: await alone() })
    const save = { directory: folder }
    try {
      return await run.fit(data, { save, resume: 'auto', ...quiet, ...options })
    } finally {
      run.dispose()
    }
  }
  it.each<[string, (count: number) => FitData]>([
    ['a list', some],
    ['a loader', (count) => dataLoader(sized(8 * count), { batch: 8 })],
  ])('refuses %s with fewer batches on one rank', async (_, data) => {
    const errors = await failures(2, async (group) => {
      const mesh = await initDeviceMesh({ tp: 2 }, group)
      const run = await trainer(recipe, { optimizer: new SGD({ learningRate }), mesh, plan: {} })
      return await run.fit(data(3 + group.rank), quiet)
    })
    for (const error of errors) expect(error).toContain('data 4, not data 3')
  })

  it.each([{ dp: 2 }, { tp: 2 }])(
    'refuses a generator that is shorter on one rank, with %j',
    async (shape) => {
      const errors = await failures(2, async (group) => {
        const mesh = await initDeviceMesh(shape as { dp: number }, group)
        const run = await trainer(recipe, { optimizer: new SGD({ learningRate }), mesh, plan: {} })
        return await run.fit(some(3 + group.rank).values(), quiet)
      })
      expect(errors[0]).toContain('data is over after 3 batches, unlike that of 1 of 2 ranks')
      expect(errors[1]).toContain('data is longer than 3 batches, unlike that of 1 of 2 ranks')
    },
  )

  it('refuses evaluation data of different sizes before the first step', async () => {
    const errors = await failures(2, async (group) => {
      const run = await trainer(recipe, { optimizer: new SGD({ learningRate }), mesh: group })
      const evaluate = { data: sized(12 + group.rank), every: 2 }
      const result = run.fit(dataset, { batch: 8, evaluate, ...quiet })
      return await result.finally(() => {
        expect(run.steps).toBe(0)
      })
    })
    for (const error of errors) expect(error).toContain('evaluate [2, 1000, 13], not evaluate')
  })

  it('iterates over equally many batches on each rank, epoch by epoch', async () => {
    const steps = await runWorld({ size: 2 }, async (group) => {
      const run = await trainer(recipe, { optimizer: new SGD({ learningRate }), mesh: group })
      const lists = await run.fit(some(3), { epochs: 2, ...quiet })
      const generators = await run.fit(some(3).values(), quiet)
      return [lists.steps, generators.steps]
    })
    for (const each of steps) expect(each).toEqual([6, 9])
  })

  it('refuses a checkpoint of a training on a different kind of data', async () => {
    const words = 'the position in the data of the checkpoint is'
    await fitAlone(some(3), {})
    await expect(fitAlone(dataset, { batch: 8 })).rejects.toThrow(words)
    rmSync(folder, { recursive: true })
    await fitAlone(dataset, { batch: 8 })
    await expect(fitAlone(some(9), {})).rejects.toThrow(words)
    rmSync(folder, { recursive: true })
    await fitAlone((step) => batchAt(step), { steps: 3 })
    await expect(fitAlone(some(9), {})).rejects.toThrow(words)
    await expect(fitAlone(dataset, { batch: 8 })).rejects.toThrow(words)
  })

  it('stops all ranks if a callback of one rank stops', async () => {
    const ends = await runWorld({ size: 2 }, async (group) => {
      const run = await trainer(recipe, { optimizer: new SGD({ learningRate }), mesh: group })
      const callback = {
        onStep: ({ step }: { step: number }) =>
          group.rank === 1 && step === 3 ? 'stop' : undefined,
      }
      const batch = (step: number) => batchAt(2 * step + group.rank)
      const { steps, end } = await run.fit(batch, { steps: 9, callbacks: [callback], ...quiet })
      return [steps, end]
    })
    for (const end of ends) expect(end).toEqual([3, 'callback'])
  })

  it('evaluates at the end, even if the last step is no multiple of `every`', async () => {
    const { evaluations } = await fitAlone(dataset, {
      batch: 8,
      steps: 5,
      resume: false,
      evaluate: { data: dataset, every: 4 },
    })
    expect(evaluations.map(({ step }) => step)).toEqual([4, 5])
  })
})
