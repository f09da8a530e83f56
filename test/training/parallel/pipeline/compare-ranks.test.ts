import { jest } from '@jest/globals'
import { runWorld } from '@tsrun/distributed'
import { parseSchedule } from '@tsrun/training/planning'
import {
  Adam,
  loadBackend,
  pipeline,
  SGD,
  summedCrossEntropy,
  tf,
  type Loss,
  type PipelineModel,
  type PipelineOptions,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { examples, model, onRanks } from '../support/small-pipeline.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

/** What each rank of a pipeline with options of its own gets from its first two calls. */
async function outcomes(of: (rank: number) => PipelineOptions): Promise<unknown[][]> {
  return await runWorld({ size: 2, seed: 2, timeout: 5000 }, async (group) => {
    const pipe = pipeline(model, group, { microbatches: 2, ...of(group.rank) })
    const run = () =>
      pipe.forwardBackward(examples(8)).then(
        ({ loss, gradients }) => {
          tf.dispose([...gradients.values()])
          return loss
        },
        (error: unknown) => error,
      )
    const seen = [await run(), await run()]
    pipe.dispose()
    return seen
  })
}

const lists = (text: string): PipelineOptions => ({ schedule: parseSchedule(text) })
const rate = (learningRate: number) => ({ optimizer: new SGD({ learningRate }) })

describe('ranks with different options', () => {
  it.each<[string, PipelineOptions, PipelineOptions, RegExp]>([
    ['a split that omits a layer', { split: [1, 3] }, {}, /split \[2, 2\], not split \[1, 3\]/],
    ['a split that has a layer twice', { split: [3, 1] }, {}, /split \[2, 2\], not split \[3, 1\]/],
    [
      'costs that lead to another split',
      { split: { costs: [9, 1, 1, 1] } },
      { split: { costs: [1, 1, 1, 9] } },
      /split \[3, 1\], not split \[1, 3\]/,
    ],
    ['a schedule', { schedule: 'gpipe' }, {}, /schedule 1f1b, not schedule gpipe/],
    ['chunks', { schedule: 'looped' }, { schedule: 'looped', chunks: 1 }, /chunks 1, not chunks 2/],
    [
      'lists of actions',
      lists('0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1'),
      lists('0F0 0F1 0B1 0B0\n1F0 1F1 1B1 1B0'),
      /schedule of rank 0: 0F0 0F1 0B1 0B0, not schedule of rank 0: 0F0 0F1 0B0 0B1/,
    ],
    ['micro-batches', {}, { microbatches: 4 }, /microbatches 4, not microbatches 2/],
    [
      'a limit on one rank only',
      {},
      { clip: { maxNorm: 1 } },
      /clip maxNorm 1, not clip undefined/,
    ],
    [
      'a limit',
      { clip: { maxNorm: 2 } },
      { clip: { maxNorm: 1 } },
      /clip maxNorm 1.* not clip max/,
    ],
    ['a learning rate', rate(0.2), rate(0.1), /SGD, learningRate 0.1, not .* learningRate 0.2/],
    ['an optimizer', rate(0.2), { optimizer: new Adam() }, /optimizer Adam.* not optimizer SGD/],
    ['an optimizer on one rank only', rate(0.2), {}, /optimizer undefined, not optimizer SGD/],
  ])('are refused on all ranks before the first pass: %s', async (_, first, second, message) => {
    const before = tf.memory().numTensors
    const ranks = await outcomes((rank) => (rank === 0 ? first : second))
    for (const seen of ranks) {
      expect(seen).toEqual([
        failure(
          'ERR_TSR_REPLICA',
          RegExp(`^Rank 1 has different options from .*${message.source}`),
        ),
        failure('ERR_TSR_PIPELINE_FAILED'),
      ])
    }
    expect(tf.memory().numTensors).toBe(before)
  })

  it("are accepted if only recompute, or a loss that is not the last rank's, differs", async () => {
    const loss: Loss = (outputs, labels) => summedCrossEntropy(outputs, labels)
    const [wanted] = await outcomes(() => ({}))
    const own = (rank: number) => (rank === 0 ? { recompute: true } : { loss })
    for (const seen of await outcomes(own)) {
      seen.forEach((found, i) => {
        expect(found).toBeCloseTo(wanted![i] as number, 5)
      })
    }
  })
})

describe('the comparison of options', () => {
  const plan: PipelineModel = {
    layers: 4,
    slice: (from, to) => model.slice(from, to),
    search: () => ({ missing: [], names: ['layers.0'] }),
  }

  it.each<[string, PipelineModel]>([
    ['a model', model],
    ['a model with a plan for named layers', plan],
  ])('takes one exchange, before the first pass only: %s', async (_, recipe) => {
    const counts = await runWorld({ size: 2 }, async (group) => {
      const gathered = jest.spyOn(group, 'allGatherObject')
      const comparisons = () =>
        gathered.mock.calls.filter(([, options]) => options?.label?.startsWith('options')).length
      const pipe = pipeline(recipe, group, { microbatches: 2, ...rate(0.1) })
      const seen = [comparisons()]
      await pipe.evaluate(examples(8))
      seen.push(comparisons())
      for (let step = 0; step < 2; step++) await pipe.step(examples(8))
      pipe.dispose()
      return [...seen, comparisons()]
    })
    expect(counts).toEqual([
      [0, 1, 1],
      [0, 1, 1],
    ])
  })

  it('is omitted in a group of one rank', async () => {
    await onRanks(1, rate(0.1), async (pipe, group) => {
      const gathered = jest.spyOn(group, 'allGatherObject')
      await pipe.step(examples(8))
      expect(gathered).not.toHaveBeenCalled()
    })
  })

  it('uses the learning rate of the first pass, and permits later changes', async () => {
    await runWorld({ size: 2 }, async (group) => {
      const optimizer = new SGD({ learningRate: group.rank })
      const pipe = pipeline(model, group, { microbatches: 2, optimizer })
      for (let step = 1; step < 3; step++) {
        optimizer.learningRate = 0.1 / step
        await pipe.step(examples(8))
      }
      pipe.dispose()
    })
  })
})
