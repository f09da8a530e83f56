import { runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

it('BatchNorm has the same losses and running statistics in every layout as in one process', async () => {
  const stdout = await runScript(4, 'test/fixtures/training/batch-norm.mjs')
  const ranks = JSON.parse(stdout) as Record<string, number | null>[]
  expect(ranks).toHaveLength(4)
  for (const worst of ranks) {
    expect(Object.keys(worst)).toHaveLength(14)
    for (const [layout, difference] of Object.entries(worst)) {
      // null stands for a loss that is not finite
      expect([layout, difference ?? Infinity]).toEqual([layout, expect.any(Number)])
      expect(difference ?? Infinity).toBeLessThan(1e-5)
    }
  }
})
