import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import fc from 'fast-check'

const worlds = fc.integer({ min: 2, max: 6 }).chain((size) =>
  fc.record({
    size: fc.constant(size),
    seed: fc.nat(),
    groups: fc.array(
      fc.shuffledSubarray(
        Array.from({ length: size }, (_, rank) => rank),
        { minLength: 1 },
      ),
      { minLength: 2, maxLength: 8 },
    ),
    /** By rank: how it permutes what it does. */
    orders: fc.array(fc.nat({ max: 10_000 }), { minLength: size, maxLength: size }),
    length: fc.constantFrom(0, 1, 7, 3000, 20_000),
  }),
)

/** The list in an order that the number chooses. */
function permuted<T>(list: readonly T[], order: number): T[] {
  const rest = [...list]
  const result: T[] = []
  for (let i = order; rest.length > 0; i = i * 31 + 7) {
    result.push(...rest.splice(i % rest.length, 1))
  }
  return result
}

describe('overlapping groups', () => {
  it('can be created and used in conflicting orders', async () => {
    await fc.assert(
      fc.asyncProperty(worlds, async ({ size, seed, groups, orders, length }) => {
        await runWorld({ size, seed }, async (world) => {
          const order = orders[world.rank]!
          const mine = groups
            .map((members, i) => ({ members, name: `group ${i}`, i }))
            .filter(({ members }) => members.includes(world.rank))
          const made = new Map<number, ProcessGroup>()
          // one after another, in an order of its own
          for (const { members, name, i } of permuted(mine, order)) {
            made.set(i, await world.newGroup(members, { name }))
          }
          const works = permuted([...made], order + 1).map(async ([i, group]) => {
            const buffer = new Float64Array(length).fill(10 ** i)
            const ring = new Int32Array(1)
            await Promise.all([
              group.allReduce(buffer),
              group.send(Int32Array.of(i), group.next),
              group.recv(ring, group.previous),
            ])
            return { i, group, buffer, ring }
          })
          for (const { i, group, buffer, ring } of await Promise.all(works)) {
            expect(buffer.every((value) => value === group.size * 10 ** i)).toBe(true)
            expect(ring[0]).toBe(i)
          }
          for (const group of permuted([...made.values()], order + 2)) await group.destroy()
        })
      }),
      { numRuns: 60 },
    )
  })

  it('that are destroyed free their memory, and their numbers are never reused', async () => {
    const ids = new Set<number>()
    await runWorld({ size: 2 }, async (world) => {
      for (let i = 0; i < 300; i++) {
        const group = await world.newGroup([1, 0])
        await group.allReduce(new Float32Array(10))
        await group.destroy()
      }
      const last = await world.newGroup([0, 1])
      const { id } = last as ProcessGroup & { readonly id: number }
      ids.add(id)
      expect(id).toBeGreaterThan(300)
    })
    expect(ids.size).toBe(1)
  })
})
