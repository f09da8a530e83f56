import { runWorld } from '@tsrun/distributed'
import { errorOf } from '../support/outcome.ts'

const timeout = 50
const LARGE = 200_000

describe('a time-out', () => {
  it('of a receive without a send names the peer, the tag and the group', async () => {
    await runWorld({ size: 3 }, async (group) => {
      if (group.rank !== 1) return
      const error = await errorOf(() => group.recv(new Float32Array(7), 2, { tag: 4, timeout }))
      expect(error).toMatchObject({
        code: 'ERR_TSR_OPERATION_TIMEOUT',
        facts: { rank: 1, group: 'world', milliseconds: timeout, peers: '2' },
      })
      expect(error?.message).toContain('recv float32[7] from rank 2, tag 4')
    })
  })

  it('of a send without a receive names the peer', async () => {
    await runWorld({ size: 2 }, async (group) => {
      if (group.rank !== 0) return
      const error = await errorOf(() => group.send(new Float32Array(LARGE), 1, { timeout }))
      expect(error).toMatchObject({ code: 'ERR_TSR_OPERATION_TIMEOUT', facts: { peers: '1' } })
    })
  })

  it('of a collective names the missing rank, and fails the other ranks at once', async () => {
    const errors = await runWorld({ size: 4 }, async (group) => {
      if (group.rank === 2) return undefined
      const options = group.rank === 0 ? { timeout } : {}
      return await errorOf(() => group.barrier(options))
    })
    expect(errors[0]).toMatchObject({ code: 'ERR_TSR_OPERATION_TIMEOUT', facts: { peers: '2' } })
    for (const error of [errors[1], errors[3]]) {
      expect(error).toMatchObject({ code: 'ERR_TSR_PEER_FAILED', facts: { peer: 0 } })
      expect(error?.message).toContain('timed out')
    }
  })

  it('defaults to the time-out of the group if the call sets none', async () => {
    await runWorld({ size: 2 }, async (group) => {
      const short = await group.newGroup([0, 1], { timeout })
      if (short.rank === 0) {
        const error = await errorOf(() => short.recv(new Float32Array(1), 1))
        expect(error?.facts).toMatchObject({ milliseconds: timeout })
        const longer = await errorOf(() => short.recv(new Float32Array(1), 1, { timeout: 60 }))
        expect(longer?.facts).toMatchObject({ milliseconds: 60 })
      }
    })
  })

  it('of the world is an option of runWorld', async () => {
    const run = runWorld({ size: 2, timeout }, async (group) => {
      if (group.rank === 0) await group.barrier()
    })
    await expect(run).rejects.toMatchObject({ code: 'ERR_TSR_OPERATION_TIMEOUT' })
  })

  it('of a message does not affect its group', async () => {
    await runWorld({ size: 2, seed: 3 }, async (group) => {
      if (group.rank === 0) {
        const recv = group.recv(new Float32Array(1), 1, { tag: 9, timeout })
        expect((await errorOf(() => recv))?.code).toBe('ERR_TSR_OPERATION_TIMEOUT')
      }
      const buffer = Float32Array.of(1)
      await group.allReduce(buffer)
      expect(buffer[0]).toBe(2)
    })
  })
})

describe.each([10, LARGE])('late messages of %i floats', (length) => {
  it('are dropped if their receive has timed out', async () => {
    await runWorld({ size: 2, seed: length }, async (group) => {
      if (group.rank === 0) {
        const late = new Float32Array(length)
        expect((await errorOf(() => group.recv(late, 1, { timeout })))?.code).toMatch(/TIMEOUT/)
        await group.barrier()
        const next = new Float32Array(length)
        await group.recv(next, 1)
        expect(late.every((value) => value === 0)).toBe(true)
        expect(next.every((value) => value === 2)).toBe(true)
      } else {
        await group.barrier()
        await group.send(new Float32Array(length).fill(1), 0)
        await group.send(new Float32Array(length).fill(2), 0)
      }
    })
  })

  it('are dropped even if their length differs from that of their timed-out receive', async () => {
    await runWorld({ size: 2, seed: length }, async (group) => {
      if (group.rank === 0) {
        const late = new Float32Array(3)
        expect((await errorOf(() => group.recv(late, 1, { timeout })))?.code).toMatch(/TIMEOUT/)
        await group.barrier()
        const next = new Float32Array(2)
        await group.recv(next, 1)
        expect([...next]).toEqual([2, 2])
      } else {
        await group.barrier()
        await group.send(new Float32Array(length).fill(1), 0)
        await group.send(new Float32Array(2).fill(2), 0)
      }
    })
  })
})
