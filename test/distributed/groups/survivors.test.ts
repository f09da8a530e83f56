import fc from 'fast-check'
import {
  survivorsOf,
  type Vote,
} from '../../../packages/distributed/src/groups/membership/shrink.ts'

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

describe('survivors', () => {
  it('have voted, and none has lost another', () => {
    fc.assert(
      fc.property(votes, ({ members, votes: cast }) => {
        const all = cast as readonly Vote[]
        const left = survivorsOf(members, all)
        for (const rank of left) {
          const gone = all.find((vote) => vote.rank === rank)!.gone
          expect(gone.filter((peer) => peer !== rank && left.includes(peer))).toEqual([])
        }
        expect(left).toEqual(members.filter((member) => left.includes(member)))
        // whoever is nobody's loss and has lost nobody stays
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

  it('are as many as possible where one has lost all others', () => {
    const gone = [0, 1, 3]
    const all = [0, 1, 2, 3].map((rank) => ({ rank, gone: rank === 2 ? gone : [2] }))
    expect(survivorsOf([3, 2, 1, 0], all)).toEqual([3, 1, 0])
  })

  it('of two that have lost each other are the lower', () => {
    const all = [
      { rank: 0, gone: [1] },
      { rank: 1, gone: [0] },
    ]
    expect(survivorsOf([0, 1], all)).toEqual([0])
  })
})
