import { runWorld } from '@tsrun/distributed'
import { SteppedWorld } from '../support/stepped-world.ts'
import { arrayOf, newArray, placements, placed, sameBits } from '../support/values.ts'

/** 16 KiB is the largest eager payload: elements below, at and above the limit. */
const lengths = [0, 1, 12, 13, 1000, 4096, 4097, 50_000]

describe('messages between two ranks', () => {
  it.each(placements)(
    'arrive in the order in which small and large ones were sent (%s)',
    async (place) => {
      await runWorld({ size: 2, seed: 5 }, async (group) => {
        const works = lengths.map((length, i) => {
          const { buffer, release } = placed(group, place, 'float32', length)
          if (group.rank === 0) buffer.fill(i + 0.5)
          const work = group.rank === 0 ? group.send(buffer, 1) : group.recv(buffer, 0)
          return { work, buffer, release, i }
        })
        for (const { work, buffer, release, i } of works) {
          await work
          expect(buffer.every((value) => value === i + 0.5)).toBe(true)
          release()
        }
      })
    },
  )

  it('can be received by tag in any order', async () => {
    await runWorld({ size: 2, seed: 9 }, async (group) => {
      const tags = [0, 7, 2 ** 31 - 1]
      if (group.rank === 0) {
        await Promise.all(
          lengths.flatMap((length, i) =>
            tags.map((tag) => group.send(newArray('int32', length).fill(tag + i), 1, { tag })),
          ),
        )
      } else {
        for (const tag of tags.reverse()) {
          for (const [i, length] of lengths.entries()) {
            const buffer = newArray('int32', length)
            await group.recv(buffer, 0, { tag })
            expect(sameBits(buffer, newArray('int32', length).fill(tag + i))).toBe(true)
          }
        }
      }
    })
  })

  it('can travel in both directions at once', async () => {
    await runWorld({ size: 3, seed: 2 }, async (group) => {
      const received = lengths.flatMap((length) =>
        [0, 1, 2]
          .filter((peer) => peer !== group.rank)
          .map((peer) => ({ peer, buffer: newArray('float64', length) })),
      )
      const sends = received.map(({ peer, buffer }) =>
        group.isend(newArray('float64', buffer.length).fill(10 * group.rank + peer), peer),
      )
      const receives = received.map(({ peer, buffer }) => group.irecv(buffer, peer))
      await Promise.all([...sends, ...receives])
      for (const { peer, buffer } of received) {
        expect(buffer.every((value) => value === 10 * peer + group.rank)).toBe(true)
      }
    })
  })

  it('are copied if they are small, so that the buffer may change once the send is done', async () => {
    const world = new SteppedWorld(2)
    const [sender, receiver] = world.groups
    const buffer = sender!.alloc('float32', 4).fill(1)
    const send = sender!.send(buffer, 1)
    await send
    buffer.fill(2)
    const received = new Float32Array(4)
    await world.finish([receiver!.recv(received, 0)])
    expect([...received]).toEqual([1, 1, 1, 1])
  })

  it('keep a large send in progress until the receiver posts its receive', async () => {
    const world = new SteppedWorld(2)
    const [sender, receiver] = world.groups
    const send = sender!.send(new Float32Array(10_000).fill(3), 1)
    world.drain()
    expect(send.isCompleted()).toBe(false)
    expect(world.ranks[1]!.engine.memory.used).toBeLessThan(100_000)
    const received = new Float32Array(10_000)
    await world.finish([send, receiver!.recv(received, 0)])
    expect(received.every((value) => value === 3)).toBe(true)
  })

  it('report when they were posted, began and ended', async () => {
    const world = new SteppedWorld(2)
    const [sender, receiver] = world.groups
    const receive = receiver!.recv(new Float32Array(10_000), 0)
    expect(receive.timing).toBeUndefined()
    world.drain()
    await world.finish([receive, sender!.send(new Float32Array(10_000), 1)])
    const { posted, started, completed } = receive.timing!
    expect(posted).toBeLessThanOrEqual(started)
    expect(started).toBeLessThanOrEqual(completed)
    expect(receive.sequence).toBe(0)
  })

  it('are reported as completed only when the buffer holds the result', async () => {
    const world = new SteppedWorld(2)
    const [sender, receiver] = world.groups
    const buffer = new Float32Array(3)
    const receive = receiver!.recv(buffer, 0)
    expect(receive.isCompleted()).toBe(false)
    await sender!.send(Float32Array.of(1, 2, 3), 1)
    world.drain()
    expect(receive.isCompleted()).toBe(true)
    expect([...buffer]).toEqual([1, 2, 3])
  })
})

describe('unexpected messages', () => {
  it.each([
    { bytes: 4, count: 6000 },
    { bytes: 20, count: 6000 },
    { bytes: 1024, count: 1000 },
    { bytes: 4096, count: 500 },
    { bytes: 16_384, count: 200 },
  ])(
    'block the sender before they exceed the memory of the receiver: $count of $bytes bytes',
    async ({ bytes, count }) => {
      const world = new SteppedWorld(3)
      const [receiver, ...senders] = world.groups
      const { memory } = world.ranks[0]!.engine
      const before = memory.used
      const payload = senders.map((sender) => sender.alloc('int32', bytes / 4))
      const sends = senders.map((sender, i) =>
        Array.from({ length: count }, () => sender.send(payload[i]!, 0)),
      )
      world.drain()
      for (const works of sends) {
        const left = works.filter((work) => work.isCompleted()).length
        expect(left).toBeGreaterThan(0)
        expect(left).toBeLessThan(count)
      }
      // of each sender at most 256 KiB, in blocks at most twice as large
      expect(memory.used - before).toBeLessThan(2 * 2 * 256 * 1024)
      const buffer = receiver!.alloc('int32', bytes / 4)
      for (let i = 0; i < count; i++) {
        await world.finish([receiver!.recv(buffer, 1), receiver!.recv(buffer, 2)])
      }
      await world.finish(sends.flat())
      expect(memory.used - before).toBeLessThan(2 * 2 * 256 * 1024)
    },
  )

  it('stay at the sender if they are large, even if there are many', async () => {
    const world = new SteppedWorld(2)
    const [sender, receiver] = world.groups
    const before = world.ranks[1]!.engine.memory.used
    const sends = Array.from({ length: 1000 }, (_, i) => {
      const buffer = i % 10 === 0 ? new Float32Array(5000) : sender!.alloc('float32', 0)
      return sender!.send(buffer.fill(i), 1)
    })
    world.drain()
    expect(world.ranks[1]!.engine.memory.used - before).toBeLessThan(256 * 1024)
    for (let i = 0; i < sends.length; i++) {
      const buffer = new Float32Array(i % 10 === 0 ? 5000 : 0)
      await world.finish([receiver!.recv(buffer, 0)])
      expect(buffer.every((value) => value === i)).toBe(true)
    }
    await world.finish(sends)
  })

  it('from one peer do not delay another peer or collectives', async () => {
    const world = new SteppedWorld(3)
    const [a, b, c] = world.groups
    const flood = Array.from({ length: 200 }, () => b!.send(new Float32Array(1000), 0, { tag: 5 }))
    const large = b!.send(new Float32Array(100_000), 0, { tag: 6 })
    world.drain()
    const buffer = new Float32Array(2)
    await world.finish([a!.recv(buffer, 2), c!.send(Float32Array.of(8, 9), 0)])
    expect([...buffer]).toEqual([8, 9])
    await world.finish(world.groups.map((group) => group.barrier()))
    const drains = flood.map(() => a!.recv(new Float32Array(1000), 1, { tag: 5 }))
    await world.finish([...flood, ...drains])
    await world.finish([large, a!.recv(new Float32Array(100_000), 1, { tag: 6 })])
  })

  it('for a group that this rank has not created yet are kept', async () => {
    await runWorld({ size: 2, seed: 4 }, async (group) => {
      if (group.rank === 1) for (let i = 0; i < 50; i++) await group.barrier()
      const pair = await group.newGroup([0, 1])
      const early = pair.allReduce(arrayOf('float32', 2, () => 1))
      const message = pair.rank === 0 ? pair.send(Float32Array.of(5), 1) : undefined
      if (group.rank === 0) for (let i = 0; i < 50; i++) await group.barrier()
      const buffer = new Float32Array(1)
      if (pair.rank === 1) await pair.recv(buffer, 0)
      await message
      await early
      expect(buffer[0]).toBe(pair.rank === 1 ? 5 : 0)
    })
  })
})
