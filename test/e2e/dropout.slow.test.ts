import { jest } from '@jest/globals'
import { reportsOf } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

// Layers of a GPT that ranks share, and parts of sequences, block inside passes.
const layouts = ['2/tp2', '2/tp2-sequence', '2/tp2-recompute', '2/cp2', '2/cp2-recompute']
const divided = ['4/cp2-tp2', '4/cp2-tp2-sequence', '4/pp2-tp2-sequence']
const rates = ['embeddingDropout', 'attentionDropout', 'residualDropout']

describe.each(rates)('a GPT with %s', (rate) => {
  const requests = [...layouts, ...divided, '1/alone'].map((layout) => `${layout}/${rate}`)
  let losses: Map<string, number[]>
  beforeAll(async () => {
    losses = await reportsOf('gpt-dropout.mjs', [...requests, '1/alone/none'])
  })

  it('has another loss than one without', () => {
    const [plain, dropped] = [losses.get('1/alone/none')!, losses.get(`1/alone/${rate}`)!]
    expect(Math.abs(dropped[0]! - plain[0]!)).toBeGreaterThan(1e-3)
  })

  it.each([...layouts, ...divided])('drops the same values on each rank as alone: %s', (layout) => {
    const alone = losses.get(`1/alone/${rate}`)!
    losses.get(`${layout}/${rate}`)!.forEach((loss, step) => {
      expect(Math.abs(loss - alone[step]!)).toBeLessThan(2e-5)
    })
  })
})
