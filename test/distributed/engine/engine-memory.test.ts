import fc from 'fast-check'
import { runWorld } from '@tsrun/distributed'
import { createMemory, heapOf } from '../../internals/distributed/arena.ts'
import { EngineMemory, EAGER_LIMIT, HEADER_BYTES } from '../../internals/distributed/engine.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

const heap = heapOf(createMemory(16 * 1024 * 1024))
const newMemory = (): EngineMemory => new EngineMemory(heap, 3, () => undefined)

describe('frame blocks of the engine', () => {
  it('hold their frame, are less than twice its size, and never overlap', () => {
    const payloads = fc.array(fc.integer({ min: 0, max: EAGER_LIMIT }), { maxLength: 100 })
    fc.assert(
      fc.property(payloads, payloads, (first, second) => {
        const memory = newMemory()
        const taken = first.map((payload) => ({ payload, at: memory.takeFrameBlock(payload) }))
        for (const { at, payload } of taken.splice(0, 50)) memory.giveFrameBlock(at, payload)
        for (const payload of second) taken.push({ payload, at: memory.takeFrameBlock(payload) })
        taken.sort((a, b) => a.at - b.at)
        for (const [i, { at, payload }] of taken.entries()) {
          const next = taken[i + 1]
          if (next !== undefined) expect(at + HEADER_BYTES + payload).toBeLessThanOrEqual(next.at)
        }
      }),
    )
    const memory = newMemory()
    for (const payload of [0, 16, 17, 80, 500, 5000, EAGER_LIMIT]) {
      const before = memory.used
      memory.takeFrameBlock(payload)
      expect(memory.used - before).toBeLessThan(2 * (payload + HEADER_BYTES) + 64)
    }
  })

  it('are reused, and their number is bounded', () => {
    const memory = newMemory()
    for (let round = 0; round < 10; round++) {
      const blocks = Array.from({ length: 300 }, () => memory.takeFrameBlock(EAGER_LIMIT))
      for (const at of blocks) memory.giveFrameBlock(at, EAGER_LIMIT)
    }
    expect(memory.used).toBeLessThan(65 * (EAGER_LIMIT + 128))
  })

  it('report the rank whose memory is full', () => {
    const memory = newMemory()
    expect(() => memory.allocate(9 * 1024 * 1024)).toThrow('of rank 3 has no room')
  })
})

describe('engine scratch memory', () => {
  it('leaves room in the engine memory for the messages of other operations', async () => {
    const memory = 4 * 1024 * 1024
    const received = await runWorld({ size: 2, memory }, async (group) => {
      const { rank } = group
      const other = await group.newGroup([0, 1])
      const buffer = group.alloc('float32', 8000)
      const hungry = Array.from({ length: 80 }, () =>
        group.allReduce(buffer, { algorithm: 'recursive-doubling' }),
      )
      const outcomes = Promise.allSettled(hungry)
      // These are not awaited yet.
      const tags = Array.from({ length: 8 }, (_, tag) => tag)
      const message = other.alloc('float32', 4000).fill(rank)
      const sends = tags.map((tag) => other.send(message, 1 - rank, { tag }))
      const isFull = (await outcomes).some(({ status }) => status === 'rejected')
      const came: (number | undefined)[] = []
      for (const tag of tags) {
        await other.recv(buffer.subarray(0, 4000), 1 - rank, { tag })
        came.push(buffer[3999])
      }
      await Promise.all(sends)
      return { came, isFull }
    })
    for (const [rank, { came, isFull }] of received.entries()) {
      expect(isFull).toBe(true)
      expect(came).toEqual(Array.from({ length: 8 }, () => 1 - rank))
    }
  })
})

describe('an algorithm whose scratch memory does not fit', () => {
  // of three ranks, where one takes part for another
  it.each([
    ['recursive-doubling', 2],
    ['halving-doubling', 1.5],
  ] as const)('is refused: %s needs %d times the buffer', async (algorithm, factor) => {
    const memory = 4 * 1024 * 1024
    const room = ((memory / 2) * 7) / 8
    const world = new SteppedWorld(3, { memory })
    const reduce = (bytes: number): PromiseLike<unknown>[] =>
      world.groups.map((group) => {
        const buffer = group.alloc('uint8', bytes)
        const work = group.allReduce(buffer, { algorithm })
        const free = (): void => {
          group.free(buffer)
        }
        work.then(free, free)
        return work
      })
    await world.finish(reduce(Math.floor((0.8 * room) / factor)))
    for (const error of await world.outcomes(reduce(Math.ceil((1.01 * room) / factor)))) {
      expect(String(error)).toContain('ERR_TSR_ENGINE_MEMORY')
    }
  })
})

describe('thousands of operations', () => {
  it('leave no memory or state in the engine', async () => {
    const world = new SteppedWorld(3)
    const round = async (): Promise<void> => {
      const works = world.groups.flatMap((group, rank) => {
        const [next, previous] = [(rank + 1) % 3, (rank + 2) % 3]
        const large = new Float32Array(5000)
        return [
          group.allReduce(new Float32Array(100)),
          group.allReduce(large),
          group.broadcast(new Float32Array(10), 1),
          group.barrier(),
          group.send(new Float32Array(10), next),
          group.recv(new Float32Array(10), previous),
          group.send(large, next, { tag: 1 }),
          group.recv(new Float32Array(5000), previous, { tag: 1 }),
          group.sendObject({ rank }, next),
          group.recvObject(previous),
        ] as PromiseLike<unknown>[]
      })
      await world.finish(works)
    }
    const held = (): number[] =>
      world.ranks.flatMap(({ engine }) => [
        engine.memory.used,
        ...engine.links.map((link) => link?.streams.size ?? 0),
      ])
    for (let i = 0; i < 20; i++) await round()
    const before = held()
    for (let i = 0; i < 300; i++) await round()
    expect(held()).toEqual(before)
  })
})
