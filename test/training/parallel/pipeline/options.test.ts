import { jest } from '@jest/globals'
import { runWorld } from '@tsrun/distributed'
import {
  loadBackend,
  pipeline,
  splitLayers,
  type PipelineModel,
  type PipelineOptions,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { model } from '../support/small-pipeline.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

describe('pipeline()', () => {
  it.each<[string, object, RegExp]>([
    [
      'a split with an unknown key',
      { split: { cost: [1, 1, 1, 9] } },
      /split is an object with cost;/,
    ],
    [
      'a split without costs',
      { split: {} },
      /split is an empty object; expected 1 numbers of layers/,
    ],
    ['a split that is a name', { split: 'even' }, /split is "even"; expected 1 numbers/],
    ['no split', { split: null }, /split is null; expected 1 numbers/],
    ['the name of a loss', { loss: 'mse' }, /loss is "mse"; expected a function/],
    ['an invalid optimizer', { optimizer: {} }, /optimizer is an empty object; expected an/],
    ['no optimizer', { optimizer: null }, /optimizer is null; expected an optimizer/],
    ['a limit without its name', { clip: 1 }, /clip is 1; expected an object with maxNorm/],
    [
      'a limit with an unknown key',
      { clip: { max_norm: 1 } },
      /the unknown key "max_norm"; expected only/,
    ],
    ['a limit of zero', { clip: { maxNorm: 0 } }, /maxNorm is 0; expected a number above 0/],
    [
      'a limit that is not a number',
      { clip: { maxNorm: NaN } },
      /maxNorm is NaN; expected a number/,
    ],
    ['no limit', { clip: {} }, /maxNorm is undefined; expected a number above 0/],
    [
      'another norm',
      { clip: { maxNorm: 1, norm: 1 } },
      /clip .* the unknown key "norm"; expected only maxNorm, tensor/,
    ],
    ['a number', { recompute: 1 }, /recompute is 1; expected true or false, or names or patterns/],
    ['no schedule', { schedule: null }, /schedule is null; expected a name, or lists/],
    ['bare lists', { schedule: [['0F0', '0B0']] }, /schedule is an array of 1/],
    [
      'chunks for a schedule without chunks',
      { chunks: 2 },
      /chunks is 2; .* with schedule: 'interleaved'/,
    ],
    ['three chunks in a V', { schedule: 'zb-v', chunks: 3 }, /chunks is 3; expected 2/],
    [
      'chunks of 1F1B',
      { schedule: '1f1b', chunks: 1 },
      /chunks is 1; .*'looped' or 'interleaved-zb'/,
    ],
    [
      'chunks of lists',
      { schedule: { actions: [['0F0', '0B0']] }, chunks: 1 },
      /chunks is 1; expected a whole number from 1, with schedule/,
    ],
  ])('refuses %s before it builds a layer', async (_, options, message) => {
    const slice = jest.fn<PipelineModel['slice']>()
    await runWorld({ size: 1 }, async (group) => {
      await Promise.resolve()
      expect(() => pipeline({ layers: 4, slice }, group, options as PipelineOptions)).toThrow(
        failure('ERR_TSR_ARGUMENT', message),
      )
    })
    expect(slice).not.toHaveBeenCalled()
  })

  it.each<[string, () => unknown, RegExp]>([
    ['a model', () => model.build(), /model is an instance of ShardedMLP; expected a recipe/],
    ['a recipe of a recipe', () => () => model, /model is a function; expected a recipe/],
    ['nothing', () => undefined, /model is undefined; expected a recipe/],
  ])('refuses %s in place of a recipe', async (_, make, message) => {
    const built = make() as PipelineModel
    await runWorld({ size: 1 }, (group) => {
      expect(() => pipeline(built, group)).toThrow(failure('ERR_TSR_ARGUMENT', message))
      return Promise.resolve()
    })
  })
})

describe('splitLayers', () => {
  it('refuses an unknown option', () => {
    const options = { cost: [1, 1, 1, 9] } as object
    expect(() => splitLayers(4, 2, options)).toThrow(
      failure('ERR_TSR_ARGUMENT', /with the unknown key "cost"; expected only costs/),
    )
  })
})
