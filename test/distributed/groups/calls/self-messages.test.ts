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

  it('is the one to the next rank of a group with one rank', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const received = new Float64Array(1)
      await Promise.all([
        group.send(Float64Array.of(4), group.next),
        group.recv(received, group.previous),
      ])
      expect(received[0]).toBe(4)
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

  it('may be prepared', async () => {
    await asSecond(async (group) => {
      const [sent, received] = [new Int32Array(2), new Int32Array(2)]
      const [send, receive] = [group.sendInit(sent, 1), group.recvInit(received, 1)]
      for (let run = 1; run <= 3; run++) {
        sent.fill(run)
        send.start()
        await receive.run()
        await send.done()
        expect([...received]).toEqual([run, run])
      }
      send.start()
      expect(() => {
        send.wait()
      }).toThrow('blocks on a message to itself')
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
