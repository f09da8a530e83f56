import { runWorld } from '@tsrun/distributed'
import { errorOf } from '../support/outcome.ts'
import { newArray } from '../support/values.ts'

describe('slices of different lengths', () => {
  const lengths = [5, 20_000]

  /** Every rank sends and expects `length`, but for what the odd ones say. */
  async function exchange(
    length: number,
    sent: Readonly<Record<string, number>>,
    expected: Readonly<Record<string, number>> = {},
  ): Promise<(Error | undefined)[]> {
    return await runWorld({ size: 3, seed: length }, async (group) => {
      const { rank, size } = group
      const ranks = Array.from({ length: size }, (_, i) => i)
      const input = ranks.map((to) => sent[`${rank}>${to}`] ?? length)
      const output = ranks.map((from) => expected[`${from}>${rank}`] ?? length)
      const sum = (list: number[]): number => list.reduce((a, b) => a + b, 0)
      return await errorOf(() =>
        group.allToAllV(
          newArray('float32', sum(output)),
          newArray('float32', sum(input)),
          output,
          input,
        ),
      )
    })
  }

  it.each(lengths)('fail allToAllV of %i, with both lengths in the error', async (length) => {
    for (const other of [0, length + 1, 30_000]) {
      const errors = await exchange(length, { '0>2': other })
      const two = errors.filter(
        (error) => (error as { code?: string } | undefined)?.code === 'ERR_TSR_MISMATCH',
      )
      expect(two.length).toBeGreaterThan(0)
      for (const error of two) {
        expect(error!.message).toContain(`allToAllV with a slice of float32[${length}]`)
        expect(error!.message).toContain(`allToAllV with a slice of float32[${other}]`)
        expect(error!.message).toMatch(/rank \(0\).*rank 2 runs|rank \(2\).*rank 0 runs/)
      }
      expect(errors.every((error) => error !== undefined)).toBe(true)
    }
  })

  it.each(lengths)('fail allGatherV of %i, with both lengths in the error', async (length) => {
    const errors = await runWorld({ size: 2 }, async (group) => {
      const own = length + group.rank
      const whole = newArray('int32', length + own)
      return await errorOf(() => group.allGatherV(whole, newArray('int32', own), [length, own]))
    })
    const texts = errors.map((error) => error?.message ?? '')
    const mismatch = texts.find((text) => text.includes('ERR_TSR_MISMATCH')) ?? ''
    expect(mismatch).toContain(`with a slice of int32[${length}]`)
    expect(mismatch).toContain(`with a slice of int32[${length + 1}]`)
  })
})
