import { reportsOf } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

interface Report {
  readonly alone: readonly number[]
  readonly ranks: readonly Readonly<Record<'together' | 'inOneStage', readonly number[]>>[]
}

describe('ranks that share the layers of a GPT', () => {
  const layouts = [
    { form: 'heads', size: 2, stages: 1 },
    { form: 'heads-tied', size: 4, stages: 2 },
    { form: 'sequence', size: 2, stages: 1 },
    { form: 'sequence-tied', size: 4, stages: 2 },
    { form: 'heads-uncached', size: 2, stages: 1 },
    { form: 'sequence-uncached', size: 2, stages: 1 },
    { form: 'context', size: 2, stages: 1 },
    { form: 'context-uncached', size: 2, stages: 1 },
    { form: 'context-tied-uncached', size: 4, stages: 2 },
  ]
  let reports: Map<string, Report>
  beforeAll(async () => {
    const requests = layouts.map(({ form, size, stages }) => `${size}/${form}/${stages}`)
    reports = await reportsOf('generate-shared.mjs', requests)
  })

  it.each(layouts)(
    'generate the same text as one process: $form, $size ranks, $stages stages',
    (given) => {
      const { form, size, stages } = given
      const { alone, ranks } = reports.get(`${size}/${form}/${stages}`)!
      expect(alone).toHaveLength(14)
      expect(new Set(alone).size).toBeGreaterThan(2)
      const same = { together: alone, inOneStage: alone, leaked: 0 }
      expect(ranks).toEqual(Array.from({ length: size }, () => same))
    },
  )
})
