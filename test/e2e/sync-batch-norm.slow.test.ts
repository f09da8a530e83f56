import { runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

describe('a BatchNorm', () => {
  it.each([1, 2, 3])(
    'of %i ranks computes the same as one process with all examples',
    async (size) => {
      const stdout = await runScript(size, 'test/fixtures/training/sync-batch-norm.mjs')
      const ranks = JSON.parse(stdout) as Record<string, number>[]
      expect(ranks).toHaveLength(size)
      for (const worst of ranks) {
        expect(Object.keys(worst)).toHaveLength(9)
        for (const error of Object.values(worst)) expect(error).toBeLessThan(1e-5)
      }
    },
  )
})
