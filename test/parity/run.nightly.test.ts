import { jest } from '@jest/globals'
import { layoutsOf, parity } from './parity.ts'

jest.setTimeout(900_000)

it('every layout of every model computes the same as a single process', async () => {
  // `npm run parity` takes 20: a difference shows in the first, or after the first update
  const rows = await parity(['--steps', '2'])
  const wanted = ['mlp', 'gpt'].flatMap((model) =>
    layoutsOf(model).map((name) => `${model} ${name}`),
  )
  expect(rows.map(({ model, configuration }) => `${model} ${configuration}`)).toEqual(wanted)
  expect(rows.filter(({ verdict }) => verdict !== 'equal')).toEqual([])
  // a verdict is made of these as well
  expect(rows.filter(({ miscounts, covered }) => miscounts.length > 0 || !covered)).toEqual([])
  const silent = rows.filter(({ messages }) => messages === 0)
  expect(silent.map(({ configuration }) => configuration).join()).not.toMatch(/pp|cp/)
  // sums in another order leave traces: a comparison of a model with itself would not
  expect(rows.filter(({ gradients }) => gradients > 0).length).toBeGreaterThan(rows.length / 2)
  expect(rows.filter(({ ranks, collectives }) => ranks > 1 && collectives === 0)).toEqual([])
})

it('every layout of a trainer() of the GPT computes the same as a single process', async () => {
  const rows = await parity(['--through', 'trainer', '--models', 'gpt', '--steps', '2'])
  expect(rows.map(({ configuration }) => configuration)).toEqual(layoutsOf('gpt'))
  expect(rows.filter(({ verdict, covered }) => verdict !== 'equal' || !covered)).toEqual([])
})
