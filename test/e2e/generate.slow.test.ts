import { jest } from '@jest/globals'
import { runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

interface Report {
  readonly alone: readonly number[]
  readonly ranks: readonly Readonly<Record<'together' | 'inOneStage', readonly number[]>>[]
}

describe('ranks that share the layers of a GPT', () => {
  it.each([
    { form: 'heads', size: 2, stages: 1 },
    { form: 'heads-tied', size: 4, stages: 2 },
    { form: 'sequence', size: 2, stages: 1 },
    { form: 'sequence-tied', size: 4, stages: 2 },
  ])('generate what one process does: $form, $size ranks, $stages stages', async (given) => {
    const { form, size, stages } = given
    const fixture = 'test/fixtures/training/generate-shared.mjs'
    const stdout = await runScript(size, fixture, form, String(stages))
    const { alone, ranks } = JSON.parse(stdout) as Report
    expect(alone).toHaveLength(14)
    expect(new Set(alone).size).toBeGreaterThan(2)
    const same = { together: alone, inOneStage: alone, leaked: 0 }
    expect(ranks).toEqual(Array.from({ length: size }, () => same))
  })
})
