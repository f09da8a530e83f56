import { runWorld } from '@tsrun/distributed'
import { errorOf } from '../../support/outcome.ts'

const nested = {
  text: 'grüße',
  list: [1, -2.5, null, true, { deep: [[]] }],
  bytes: Uint8Array.of(1, 2, 3),
  floats: Float32Array.of(0.5, -1),
  big: 2n ** 60n,
  map: new Map([['a', 1]]),
  set: new Set([1, 2]),
  date: new Date(0),
}
const large = { text: 'x'.repeat(60_000), values: new Float64Array(3000).fill(0.25) }
const values = [nested, large, 0, '', undefined, null, [], large]

describe('objects', () => {
  it('are broadcast from every root', async () => {
    await runWorld({ size: 3, seed: 1 }, async (group) => {
      for (let root = 0; root < 3; root++) {
        for (const value of values) {
          const mine = group.rank === root ? value : 'not mine'
          expect(await group.broadcastObject<unknown>(mine, root)).toEqual(value)
        }
      }
    })
  })

  it('are gathered in rank order, even if their sizes differ widely', async () => {
    await runWorld({ size: 4, seed: 2 }, async (group) => {
      for (let shift = 0; shift < values.length; shift++) {
        const of = (rank: number): unknown => values[(rank + shift) % values.length]
        const expected = [0, 1, 2, 3].map(of)
        expect(await group.allGatherObject(of(group.rank))).toEqual(expected)
      }
    })
  })

  it('are sent in order for each tag, independently of messages with arrays', async () => {
    await runWorld({ size: 2, seed: 3 }, async (group) => {
      if (group.rank === 0) {
        const sends = values.map((value, i) => group.sendObject(value, 1, { tag: i % 2 }))
        await group.send(Float32Array.of(9), 1, { tag: 1 })
        await Promise.all(sends)
      } else {
        const buffer = new Float32Array(1)
        await group.recv(buffer, 0, { tag: 1 })
        expect(buffer[0]).toBe(9)
        for (const tag of [1, 0]) {
          const expected = values.filter((_, i) => i % 2 === tag)
          const works = expected.map(() => group.recvObject(0, { tag }))
          expect(await Promise.all(works.reverse())).toEqual(expected.reverse())
        }
      }
    })
  })

  it('may be awaited in different orders on different ranks', async () => {
    await runWorld({ size: 3, seed: 4 }, async (group) => {
      const works = [10, 20, 30].map((value) => group.allGatherObject(value + group.rank))
      const order = [
        [0, 1, 2],
        [2, 1, 0],
        [1, 2, 0],
      ][group.rank]!
      for (const i of order) {
        const value = 10 * (i + 1)
        expect(await works[i]).toEqual([value, value + 1, value + 2])
      }
    })
  })

  it('are transferred before they are awaited', async () => {
    await runWorld({ size: 2, seed: 5 }, async (group) => {
      const work = group.broadcastObject(large, 0)
      await group.barrier()
      while (!work.isCompleted()) await new Promise((resolve) => setImmediate(resolve))
      expect(work.timing?.completed).toBeGreaterThan(0)
      expect(await work).toEqual(large)
    })
  })

  it('that cannot be encoded are refused', async () => {
    await runWorld({ size: 2 }, async (group) => {
      await Promise.resolve()
      if (group.rank === 1) return
      const huge = new Uint8Array(17 * 1024 * 1024)
      expect(await errorOf(() => group.sendObject(huge, 1))).toMatchObject({
        code: 'ERR_TSR_MESSAGE_TOO_LARGE',
      })
      expect(await errorOf(() => group.sendObject(Symbol('x'), 1))).toMatchObject({
        code: 'ERR_TSR_ARGUMENT',
      })
    })
  })

  it('time out if they do not arrive, and the next receive gets the next object', async () => {
    await runWorld({ size: 2, seed: 6 }, async (group) => {
      if (group.rank === 0) {
        const error = await errorOf(() => group.recvObject(1, { timeout: 30 }))
        expect(error?.code).toBe('ERR_TSR_OPERATION_TIMEOUT')
        await group.barrier()
        expect(await group.recvObject(1)).toEqual('second')
      } else {
        await group.barrier()
        await Promise.all([group.sendObject(large, 0), group.sendObject('second', 0)])
      }
    })
  })

  it('are awaited with a time-out and a signal like other operations', async () => {
    const aborted = { signal: AbortSignal.abort() }
    const errors = await runWorld({ size: 2 }, async (group) => {
      if (group.rank === 1) return undefined
      expect((await errorOf(() => group.recvObject(1, aborted)))?.code).toMatch(/ABORTED/)
      expect((await errorOf(() => group.sendObject(1, 1, aborted)))?.code).toMatch(/ABORTED/)
      return await errorOf(() => group.broadcastObject(1, 1, { timeout: 20 }))
    })
    expect(errors[0]?.code).toBe('ERR_TSR_OPERATION_TIMEOUT')
  })
})
