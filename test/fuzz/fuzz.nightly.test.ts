import { campaign } from './campaign.ts'
import { targets } from './targets.ts'

// what the library logs of bad input is not of interest here
process.env['TSRUN_LOG_LEVEL'] = 'silent'

// The first 100 of these inputs are also in fuzz.test.ts.
describe.each(targets.map((target) => [target.name, target] as const))(
  'the parser of %s',
  (_, target) => {
    it('reads 400 mutated inputs without an unexpected error', async () => {
      const { find } = await campaign(target, { seed: 20_261_125, inputs: 400 })
      expect(
        find && { problem: find.problem, input: Buffer.from(find.input).toString('hex') },
      ).toBe(undefined)
    })
  },
)
