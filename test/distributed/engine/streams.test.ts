import { runWorld } from '@tsrun/distributed'
import { SteppedWorld } from '../support/stepped-world.ts'

const TAGS = 8000
/** More than a link opens before it searches for idle streams. */
const MANY = 1100
/** Elements of a message that is cleared before it is sent, and of one that is not. */
const [LARGE, SMALL] = [5000, 1]

describe('messages of many tags', () => {
  it(`with ${TAGS} tags leave no streams on either side`, async () => {
    const world = new SteppedWorld(2)
    const [a, b] = world.groups
    const links = [world.ranks[0]!.engine.links[1]!, world.ranks[1]!.engine.links[0]!]
    const buffers = [Int32Array.of(0), Int32Array.of(0)]
    let most = 0
    for (let tag = 0; tag < TAGS; tag += 500) {
      const works = Array.from({ length: 500 }, (_, i) => [
        a!.isend(buffers[0]!, 1, { tag: tag + i }),
        b!.irecv(buffers[1]!, 0, { tag: tag + i }),
      ])
      await world.finish(works.flat())
      most = Math.max(most, ...links.map(({ streams }) => streams.size))
    }
    expect(most).toBeLessThan(4096)
    for (const { engine } of world.ranks) expect(engine.memory.used).toBeLessThan(128 * 1024)
  })

  it.each([1, 2, 3])(
    'stay in order if their streams are freed meanwhile (seed %i)',
    async (seed) => {
      await runWorld({ size: 2, seed, memory: 64 * 1024 * 1024 }, async (group) => {
        const other = 1 - group.rank
        for (let round = 0; round < 3; round++) {
          const works = Array.from({ length: MANY }, (_, tag) => {
            const isLarge = (tag + round) % 37 === 0
            const length = isLarge ? LARGE : SMALL
            const mine = new Int32Array(length).fill(round * MANY + tag)
            const theirs = new Int32Array(length)
            const receive = (): PromiseLike<unknown> => group.irecv(theirs, other, { tag })
            const early = tag % 2 === group.rank ? receive() : undefined
            const sent = group.isend(mine, other, { tag })
            return { theirs, tag, sent, received: early ?? receive() }
          })
          const wrong: number[] = []
          for (const { theirs, tag, sent, received } of works) {
            await sent
            await received
            if (theirs.some((value) => value !== round * MANY + tag)) wrong.push(tag)
          }
          expect(wrong).toEqual([])
        }
      })
    },
  )
})

describe('a stream that one side asks to free', () => {
  /** Rank 1 has taken a message of each tag, and has asked to forget the tags. */
  async function asked(): Promise<SteppedWorld> {
    const world = new SteppedWorld(2)
    const [a, b] = world.groups
    const [one, two] = [Int32Array.of(1), Int32Array.of(0)]
    for (let tag = 0; tag < 1023; tag++) {
      await world.finish([a!.isend(one, 1, { tag }), b!.irecv(two, 0, { tag })])
    }
    // the last stream of its round, opened by a receive that waits
    const waiting = b!.irecv(two, 0, { tag: 1023 })
    const streams = [...world.ranks[1]!.engine.links[0]!.streams.values()]
    expect(streams.filter(({ held }) => held !== undefined)).toHaveLength(1023)
    const sent = a!.isend(one, 1, { tag: 1023 })
    await world.finish([waiting, sent], [1])
    return world
  }

  it('restarts if the other side has sent nothing more', async () => {
    const world = await asked()
    const [a, b] = world.groups
    const [mine, theirs] = [new Int32Array(LARGE).fill(7), new Int32Array(LARGE)]
    const received = b!.irecv(theirs, 0, { tag: 5 })
    world.drain()
    const sizes = world.ranks.map(({ engine }) => engine.links.find(Boolean)!.streams.size)
    expect(Math.max(...sizes)).toBeLessThan(5)
    await world.finish([received, a!.isend(mine, 1, { tag: 5 })])
    expect(theirs.every((value) => value === 7)).toBe(true)
  })

  it('continues if the other side has sent more meanwhile', async () => {
    const world = await asked()
    const [a, b] = world.groups
    const [mine, theirs] = [new Int32Array(LARGE), new Int32Array(LARGE)]
    mine.fill(7)
    const works = [b!.irecv(theirs, 0, { tag: 5 }), a!.isend(mine, 1, { tag: 5 })]
    await world.finish(works)
    expect(theirs.every((value) => value === 7)).toBe(true)
    mine.fill(8)
    await world.finish([b!.irecv(theirs, 0, { tag: 5 }), a!.isend(mine, 1, { tag: 5 })])
    expect(theirs.every((value) => value === 8)).toBe(true)
  })
})

describe('a group that one rank has left', () => {
  it.each([
    ['announced', undefined],
    ['offered', [0, 0]],
  ] as const)('opens no stream for a message that is %s', async (_, hosts) => {
    const world = new SteppedWorld(2, hosts && { hosts })
    const [a, b] = await Promise.all(world.groups.map((group) => group.newGroup([0, 1])))
    await b!.destroy()
    const [sent, asked] = [
      a!.isend(new Int32Array(LARGE), 1),
      a!.irecv(new Int32Array(LARGE), 1, { tag: 3 }),
    ]
    world.drain([1])
    expect(world.ranks[1]!.engine.links[0]!.streams.size).toBe(0)
    for (const error of await world.outcomes([sent, asked])) {
      expect(error).toMatchObject({ code: 'ERR_TSR_GROUP_LEFT' })
    }
  })
})
