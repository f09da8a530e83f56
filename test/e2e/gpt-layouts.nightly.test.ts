import { jest } from '@jest/globals'
import { reportsOf } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

// Layers of a GPT that ranks share, and parts of sequences, block inside passes.
const shared = ['2/tp2', '2/tp2-sequence', '2/tp2-recompute', '4/pp2-tp2-sequence']
const divided = ['2/cp2', '2/cp2-recompute', '4/cp2-tp2', '4/cp2-tp2-sequence', '4/cp2-pp2']
const replicated = ['4/cp2-dp2', '4/cp2-dp2-zero', '2/cp2-accumulate', '4/tp2-dp2', '2/dp2-zero']
const layouts = [...shared, ...divided, ...replicated]
const problems = ['embeddingDropout', 'attentionDropout', 'residualDropout', 'ignored']

describe.each(problems)('a GPT with option %s', (problem) => {
  const requests = [...layouts, '1/alone'].map((layout) => `${layout}/${problem}`)
  let losses: Map<string, number[]>
  beforeAll(async () => {
    losses = await reportsOf('gpt-layouts.mjs', [...requests, '1/alone/none'])
  })

  it('has a different loss than without the option', () => {
    const [plain, other] = [losses.get('1/alone/none')!, losses.get(`1/alone/${problem}`)!]
    expect(Math.abs(other[0]! - plain[0]!)).toBeGreaterThan(1e-3)
  })

  it.each(layouts)('trains and evaluates as in one process: %s', (layout) => {
    const alone = losses.get(`1/alone/${problem}`)!
    losses.get(`${layout}/${problem}`)!.forEach((figure, i) => {
      expect(Math.abs(figure - alone[i]!)).toBeLessThan(2e-5)
    })
  })
})
