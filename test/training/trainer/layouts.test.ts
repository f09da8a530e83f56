import { gpt } from '@tsrun/models'
import { alone, BLOCK, describeLayouts, isUsual, language, together } from './support/layouts.ts'

describeLayouts(isUsual)

it('a trainer trains tied tables in a pipeline with ZeRO 3 as in a single process', async () => {
  const tied = gpt({ vocabulary: 17, block: BLOCK, layers: 2, heads: 2, width: 8, tied: true })
  const problem = { ...language, recipe: tied }
  const expected = alone(problem)
  for (const losses of await together(problem, ['', { pp: 2, dp: 2 }, { zero: 3 }])) {
    losses.forEach((loss, step) => {
      expect(Math.abs(loss - expected[step]!)).toBeLessThan(2e-5)
    })
  }
})
