import { runWorld } from '@tsrun/distributed'
import type { Call } from '../support/failing-call.ts'
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

  it.each(lengths)(
    'fail gatherV, scatterV and allGatherV of %i, with both lengths in the error',
    async (length) => {
      const calls: Call[] = [
        (group) =>
          group.rank === 0
            ? group.gatherV(
                newArray('int32', 2 * length),
                newArray('int32', length),
                [length, length],
                0,
              )
            : group.gatherV(null, newArray('int32', length + 1), null, 0),
        (group) =>
          group.rank === 0
            ? group.scatterV(
                newArray('int32', length),
                newArray('int32', 2 * length),
                [length, length],
                0,
              )
            : group.scatterV(newArray('int32', length + 1), null, null, 0),
        (group) =>
          group.allGatherV(
            newArray('int32', 2 * length + group.rank),
            newArray('int32', length + group.rank),
            [length, length + group.rank],
          ),
      ]
      for (const call of calls) {
        const errors = await runWorld(
          { size: 2 },
          async (group) => await errorOf(() => call(group)),
        )
        const texts = errors.map((error) => error?.message ?? '')
        const mismatch = texts.find((text) => text.includes('ERR_TSR_MISMATCH')) ?? ''
        expect(mismatch).toContain(`with a slice of int32[${length}]`)
        expect(mismatch).toContain(`with a slice of int32[${length + 1}]`)
      }
    },
  )
})
