import { runWorld } from '@tsrun/distributed'
import { thrownBy } from '../../support/outcome.ts'

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

  it('can be aborted by a signal', async () => {
    await runWorld({ size: 2, seed: 3 }, async (group) => {
      const controller = new AbortController()
      const receives = Array.from({ length: 12 }, (_, tag) => ({
        op: 'recv' as const,
        buffer: new Int32Array(1),
        peer: 1 - group.rank,
        tag,
      }))
      const { signal } = controller
      const works = group.batchIsendIrecv(receives, { signal })
      controller.abort()
      for (const work of works) {
        await expect(work).rejects.toMatchObject({ code: 'ERR_TSR_OPERATION_ABORTED' })
      }
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
