import type { ProcessGroup } from '@tsrun/distributed'
import fc from 'fast-check'
import { errorOf } from '../../support/outcome.ts'
import { SteppedWorld } from '../../support/stepped-world.ts'
import { survivorsOf, type Vote } from '../../../internals/distributed/groups.ts'

const losses = fc.integer({ min: 2, max: 5 }).chain((size) =>
  fc.record({
    size: fc.constant(size),
    /** These are lost, the later ones while the others shrink. */
    lost: fc.subarray(
      Array.from({ length: size }, (_, rank) => rank),
      { minLength: 1, maxLength: size - 1 },
    ),
    early: fc.nat({ max: size }),
  }),
)

/** Shrinks until the group that is left works. */
async function goOn(group: ProcessGroup): Promise<{ ranks: readonly number[]; sum: number }> {
  let left = group
  for (;;) {
    const buffer = Float32Array.of(2 ** group.rank, ...Array<number>(20_000).fill(0))
    const error = await errorOf(() => left.allReduce(buffer))
    if (error === undefined) return { ranks: left.ranks, sum: buffer[0]! }
    left = await left.shrink()
  }
}

describe('shrink', () => {
  it('gives all survivors the same working group, whenever the rank is lost', async () => {
    await fc.assert(
      fc.asyncProperty(losses, async ({ size, lost, early }) => {
        const world = new SteppedWorld(size)
        const lose = (rank: number): void => {
          world.ranks[rank]!.transport.close()
        }
        for (const rank of lost.slice(0, early)) lose(rank)
        const survivors = [...world.groups.keys()].filter((rank) => !lost.includes(rank))
        const running = survivors.map(async (rank) => await goOn(world.groups[rank]!))
        // the others go one by one, while those above are somewhere in between
        for (const rank of lost.slice(early)) {
          for (let i = 0; i < 3 + rank; i++) world.step(survivors)
          await new Promise((resolve) => setTimeout(resolve, 5 * rank))
          lose(rank)
        }
        const sum = survivors.reduce((all, rank) => all + 2 ** rank, 0)
        const results = await world.finish<unknown>(running, survivors)
        expect(results).toEqual(survivors.map(() => ({ ranks: survivors, sum })))
      }),
      { numRuns: 15 },
    )
  })

  it('fails the old group on ranks that have not noticed the loss', async () => {
    const world = new SteppedWorld(3)
    const [a, b, c] = world.groups
    // it waits for rank 0, and needs nothing of the one that leaves
    const waiting = errorOf(() => c!.recv(new Float32Array(1), 0))
    await b!.destroy()
    world.drain()
    const first = a!.shrink()
    const [error] = await world.finish<unknown>([waiting])
    expect(error).toMatchObject({ code: 'ERR_TSR_PEER_FAILED' })
    expect(String(error)).toContain('rank 0 shrinks the group')
    const groups = (await world.finish<unknown>([first, c!.shrink()])) as ProcessGroup[]
    expect(groups.map(({ ranks }) => ranks)).toEqual([
      [0, 2],
      [0, 2],
    ])
  })

  it('keeps one of two ranks that lost each other, and tells the excluded one', async () => {
    const world = new SteppedWorld(3)
    const [a, b, c] = world.groups
    world.ranks[1]!.transport.closePeer(2)
    world.drain()
    const shrinks = [a!, b!, c!].map((group) => group.shrink().catch((error: unknown) => error))
    const [first, second, third] = await world.finish<unknown>(shrinks)
    expect((first as ProcessGroup).ranks).toEqual([0, 1])
    expect((second as ProcessGroup).ranks).toEqual([0, 1])
    expect(third).toMatchObject({ code: 'ERR_TSR_EXCLUDED', facts: { rank: 2 } })
  })

  it('excludes ranks that do not call it in time, and tells them', async () => {
    const world = new SteppedWorld(3)
    const [a, b, c] = world.groups
    const options = { timeout: 200, name: 'rest' }
    const [left, alike] = (await world.finish<unknown>([
      a!.shrink(options),
      c!.shrink(options),
    ])) as ProcessGroup[]
    expect([left!.ranks, alike!.ranks, left!.name]).toEqual([[0, 2], [0, 2], 'rest'])
    const late = errorOf(() => b!.shrink(options))
    expect((await world.finish<unknown>([late]))[0]).toMatchObject({ code: 'ERR_TSR_EXCLUDED' })
  })

  it('can be aborted, and called again', async () => {
    const world = new SteppedWorld(2)
    const [a, b] = world.groups
    const error = await errorOf(() => a!.shrink({ signal: AbortSignal.timeout(60) }))
    expect(error?.code).toMatch(/ABORTED/)
    const groups = (await world.finish<unknown>([a!.shrink(), b!.shrink()])) as ProcessGroup[]
    expect(groups.map(({ ranks }) => ranks)).toEqual([
      [0, 1],
      [0, 1],
    ])
  })

  it('does not permit reconfigure() in an in-process world', async () => {
    const world = new SteppedWorld(1)
    const error = await errorOf(() => world.groups[0]!.reconfigure())
    expect(error).toMatchObject({ code: 'ERR_TSR_CANNOT_RECONFIGURE' })
  })
})

const votes = fc.integer({ min: 1, max: 8 }).chain((size) => {
  const ranks = Array.from({ length: size }, (_, rank) => rank)
  return fc.record({
    members: fc.shuffledSubarray(ranks, { minLength: size }),
    votes: fc
      .subarray(ranks)
      .chain((voters) =>
        fc.tuple(...voters.map((rank) => fc.subarray(ranks).map((gone) => ({ rank, gone })))),
      ),
  })
})

describe('the survivors that shrink computes', () => {
  it('have all voted, and have not lost each other', () => {
    fc.assert(
      fc.property(votes, ({ members, votes: cast }) => {
        const all = cast as readonly Vote[]
        const left = survivorsOf(members, all)
        for (const rank of left) {
          const gone = all.find((vote) => vote.rank === rank)!.gone
          expect(gone.filter((peer) => peer !== rank && left.includes(peer))).toEqual([])
        }
        expect(left).toEqual(members.filter((member) => left.includes(member)))
        // Members stay that no other rank has lost and that have lost none.
        for (const { rank, gone } of all) {
          const isApart = all.some((vote) => vote.gone.includes(rank))
          if (!isApart && gone.every((peer) => !all.some((vote) => vote.rank === peer))) {
            expect(left).toContain(rank)
          }
        }
      }),
    )
  })

  it('do not depend on the order of the votes', () => {
    fc.assert(
      fc.property(votes, ({ members, votes: cast }) => {
        const all = cast as readonly Vote[]
        expect(survivorsOf(members, [...all].reverse())).toEqual(survivorsOf(members, all))
      }),
    )
  })

  it('are all ranks except one that has lost every other rank', () => {
    const gone = [0, 1, 3]
    const all = [0, 1, 2, 3].map((rank) => ({ rank, gone: rank === 2 ? gone : [2] }))
    expect(survivorsOf([3, 2, 1, 0], all)).toEqual([3, 1, 0])
  })

  it('include the lower of two ranks that lost each other', () => {
    const all = [
      { rank: 0, gone: [1] },
      { rank: 1, gone: [0] },
    ]
    expect(survivorsOf([0, 1], all)).toEqual([0])
  })
})
