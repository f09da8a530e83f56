import { runWorld } from '@tsrun/distributed'
import fc from 'fast-check'
import { errorOf, thrownBy } from '../../support/outcome.ts'

describe('split', () => {
  it('gives every rank the group of its colour, ordered by key, then by rank', async () => {
    const cases = fc.integer({ min: 1, max: 6 }).chain((size) =>
      fc.record({
        seed: fc.nat(),
        ranks: fc.array(
          fc.record({
            color: fc.option(fc.integer({ min: -2, max: 2 })),
            key: fc.option(fc.integer({ min: -3, max: 3 }), { nil: undefined }),
          }),
          { minLength: size, maxLength: size },
        ),
      }),
    )
    await fc.assert(
      fc.asyncProperty(cases, async ({ seed, ranks }) => {
        await runWorld({ size: ranks.length, seed }, async (world) => {
          const { color, key } = ranks[world.rank]!
          const group = await world.split(color, key)
          const expected = ranks
            .map((each, rank) => ({ ...each, rank }))
            .filter((each) => each.color === color)
            .sort((a, b) => (a.key ?? a.rank) - (b.key ?? b.rank) || a.rank - b.rank)
            .map(({ rank }) => rank)
          if (color === null) {
            expect(group).toBeUndefined()
            return
          }
          expect(group?.ranks).toEqual(expected)
          const all = await group!.allGatherObject(world.rank)
          expect(all).toEqual(expected)
        })
      }),
      { numRuns: 60 },
    )
  })

  it('also divides a group created by split', async () => {
    await runWorld({ size: 6 }, async (world) => {
      const even = (await world.split(world.rank % 2, -world.rank))!
      expect(even.ranks).toEqual(world.rank % 2 === 0 ? [4, 2, 0] : [5, 3, 1])
      const ends = await even.split(even.rank === 1 ? null : 7, 0, { name: 'ends' })
      expect(ends?.ranks).toEqual(
        even.rank === 1 ? undefined : world.rank % 2 === 0 ? [4, 0] : [5, 1],
      )
      if (ends !== undefined) expect(ends.name).toBe('ends')
    })
  })

  it.each([
    ['colour', 1.5, 0],
    ['colour', 'red', 0],
    ['key', 1, NaN],
  ])('refuses a wrong %s', async (_, color, key) => {
    await runWorld({ size: 1 }, async (world) => {
      const error = await errorOf(() => world.split(color as number, key))
      expect(error?.code).toBe('ERR_TSR_ARGUMENT')
    })
  })

  it('is not mistaken for another operation', async () => {
    await runWorld({ size: 2 }, async (world) => {
      const error = await errorOf(() =>
        world.rank === 0 ? world.split(1) : world.allReduce(new Float32Array(1)),
      )
      expect(error?.code).toBe('ERR_TSR_MISMATCH')
    })
  })
})

describe('rank numbers', () => {
  it('are translated between group and world', async () => {
    await runWorld({ size: 4 }, async (world) => {
      if (world.rank === 1) return
      const group = await world.newGroup([3, 0, 2])
      expect([0, 1, 2].map((rank) => group.globalRank(rank))).toEqual([3, 0, 2])
      expect([3, 0, 2].map((rank) => group.groupRank(rank))).toEqual([0, 1, 2])
      for (const call of [() => group.groupRank(1), () => group.globalRank(3)]) {
        expect(thrownBy(call)).toMatchObject({ code: 'ERR_TSR_RANK_RANGE' })
      }
      expect(group.generation).toBe(0)
    })
  })
})
