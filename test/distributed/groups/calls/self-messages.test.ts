import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { errorOf, thrownBy } from '../../support/outcome.ts'

/** Runs as rank 1 of two. */
async function asSecond<T>(run: (group: ProcessGroup) => Promise<T>): Promise<T | undefined> {
  const results = await runWorld({ size: 2 }, async (group) =>
    group.rank === 1 ? await run(group) : undefined,
  )
  return results[1]
}

describe('a message of a rank to itself', () => {
  it('matches its send and its receive, in either order, by tag', async () => {
    await asSecond(async (group) => {
      const buffers = [1, 2, 3].map(() => new Float64Array(2))
      const receives = [
        group.recv(buffers[0]!, 1, { tag: 1 }),
        group.recv(buffers[1]!, 1, { tag: 2 }),
      ]
      await group.send(Float64Array.of(4, 5), 1, { tag: 2 })
      await group.send(Float64Array.of(6, 7), 1, { tag: 1 })
      const sent = group.send(Float64Array.of(8, 9), 1)
      receives.push(group.recv(buffers[2]!, 1))
      await sent
      expect(await Promise.all(receives)).toEqual([1, 1, 1])
      expect(buffers.map((buffer) => buffer[0])).toEqual([6, 4, 8])
    })
  })

  it('may carry objects and buffers of the arena', async () => {
    await asSecond(async (group) => {
      const value = { text: 'x'.repeat(50_000) }
      const received = group.recvObject(1)
      await group.sendObject(value, 1)
      expect(await received).toEqual(value)
      const buffer = group.alloc('int32', 3)
      const work = group.send(buffer.subarray(0, 1).fill(7), 1)
      await group.recv(buffer.subarray(2), 1)
      await work
      expect([...buffer]).toEqual([7, 0, 7])
    })
  })

  it('fails at once if it would block forever, and leaves no pending operation', async () => {
    await asSecond(async (group) => {
      const buffer = new Int32Array(1)
      expect(
        thrownBy(() => {
          group.sendSync(Int32Array.of(1), 1)
        }),
      ).toMatchObject({ code: 'ERR_TSR_SELF_SEND', facts: { operation: 'send', rank: 1 } })
      expect(thrownBy(() => group.recvSync(buffer, 1))).toMatchObject({
        code: 'ERR_TSR_SELF_SEND',
      })
      const received = group.recv(buffer, 1)
      group.sendSync(Int32Array.of(2), 1)
      expect(received.wait()).toBe(1)
      expect(buffer[0]).toBe(2)
      await Promise.resolve()
    })
  })

  it('with different lengths or dtypes fails on both sides', async () => {
    await asSecond(async (group) => {
      const receive = group.recv(new Float32Array(2), 1)
      const send = group.send(new Int32Array(2), 1)
      for (const work of [receive, send]) {
        expect(await errorOf(() => work)).toMatchObject({
          code: 'ERR_TSR_MISMATCH',
          message: expect.stringContaining('recv float32[2]'),
        })
      }
    })
  })

  it('without a match times out, can be aborted, and ends with the group', async () => {
    await asSecond(async (group) => {
      const options = { timeout: 10, label: 'weights' }
      expect(await errorOf(() => group.send(new Float32Array(1), 1, options))).toMatchObject({
        code: 'ERR_TSR_OPERATION_TIMEOUT',
        message: expect.stringMatching(/^weights: .*with itself/),
      })
      const controller = new AbortController()
      const aborted = group.recv(new Float32Array(1), 1, { signal: controller.signal })
      controller.abort()
      expect(await errorOf(() => aborted)).toMatchObject({ code: 'ERR_TSR_OPERATION_ABORTED' })
      const buffer = new Float32Array(1)
      const left = group.recv(buffer, 1)
      await group.destroy()
      expect(await errorOf(() => left)).toMatchObject({ code: 'ERR_TSR_GROUP_DESTROYED' })
      expect(thrownBy(() => group.send(buffer, 1))).toMatchObject({
        code: 'ERR_TSR_GROUP_DESTROYED',
      })
    })
  })
})

describe('a batch of messages', () => {
  it('can pass messages around a ring and to the rank itself, and returns the sources', async () => {
    await runWorld({ size: 4, seed: 3 }, async (group) => {
      const { rank, size } = group
      const incoming = Array.from({ length: size }, () => new Int32Array(20_000))
      const ends = await Promise.all(
        group.batchIsendIrecv([
          ...incoming.map((_, peer) => ({
            op: 'send' as const,
            buffer: new Int32Array(20_000).fill(10 * rank + peer),
            peer,
          })),
          ...incoming.map((buffer, peer) => ({ op: 'recv' as const, buffer, peer })),
        ]),
      )
      expect(ends.slice(size)).toEqual([0, 1, 2, 3])
      expect(incoming.map((buffer) => buffer[19_999])).toEqual(
        incoming.map((_, peer) => 10 * peer + rank),
      )
    })
  })

  it('is refused as a whole, so that none of its messages is started', async () => {
    await runWorld({ size: 2, seed: 3 }, async (group) => {
      const peer = 1 - group.rank
      const buffer = new Int32Array(1)
      const good = { op: 'send', buffer: Int32Array.of(9), peer } as const
      for (const [wrong, code] of [
        [{ ...good, peer: 5 }, 'ERR_TSR_RANK_RANGE'],
        [{ ...good, buffer: [1] }, 'ERR_TSR_BUFFER'],
        [{ ...good, tag: -1 }, 'ERR_TSR_ARGUMENT'],
        [{ ...good, op: 'put' }, 'ERR_TSR_ARGUMENT'],
      ] as const) {
        const error = thrownBy(() => group.batchIsendIrecv([good, wrong as never]))
        expect(error).toMatchObject({ code })
      }
      // no room for the second: the first is given up
      const big = new Float32Array(40_000_000)
      const batch = [good, { op: 'send', buffer: big, peer } as const]
      expect(thrownBy(() => group.batchIsendIrecv(batch, {}))).toMatchObject({
        code: 'ERR_TSR_ARENA_EXHAUSTED',
      })
      await group.barrier()
      const sent = group.send(Int32Array.of(3), peer, { tag: 1 })
      await group.recv(buffer, peer, { tag: 1 })
      await sent
      expect(buffer[0]).toBe(3)
    })
  })
})
