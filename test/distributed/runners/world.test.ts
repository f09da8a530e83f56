import { jest } from '@jest/globals'
import { runWorld } from '@tsrun/distributed'
import { errorOf, thrownBy } from '../support/outcome.ts'

jest.setTimeout(60_000)

describe('runWorld', () => {
  it('returns the results in rank order', async () => {
    expect(await runWorld({ size: 4 }, async (group) => Promise.resolve(group.rank))).toEqual([
      0, 1, 2, 3,
    ])
  })

  it.each([
    [
      { size: 2, ranks: 3 },
      'options is an object with the unknown key "ranks"; expected only size, seed',
    ],
    [{ size: 0 }, 'size is 0; expected a whole number from 1'],
  ])('refuses %j', async (options, message) => {
    const error = await errorOf(() => runWorld(options, () => Promise.resolve()))
    expect(error?.message).toContain(message)
  })

  it('names the ranks that wait for each other if all wait forever', async () => {
    const run = runWorld({ size: 3 }, async (group) => {
      await group.recv(new Float32Array(1), (group.rank + 1) % 3)
    })
    const error = await errorOf(() => run)
    expect(error?.code).toBe('ERR_TSR_DEADLOCK')
    expect(error?.message).toContain('rank 2: recv float32[1] from rank 0, tag 0 waits for rank 0')
  })

  it('names the ranks that wait forever after the others have ended', async () => {
    const run = runWorld({ size: 3 }, async (group) => {
      if (group.rank === 0) await group.barrier()
    })
    expect((await errorOf(() => run))?.message).toContain('rank 0: barrier by dissemination #0')
  })

  it('waits for a program that is busy with other work', async () => {
    await runWorld({ size: 2 }, async (group) => {
      if (group.rank === 0) await new Promise((resolve) => setTimeout(resolve, 700))
      await group.barrier()
    })
  })

  it('throws the error of a program after the others have ended', async () => {
    const ended: number[] = []
    const run = runWorld({ size: 3 }, async (group) => {
      if (group.rank === 1) throw new Error('mistake of rank 1')
      await errorOf(() => group.recv(new Float32Array(1), 1, { timeout: 20 }))
      ended.push(group.rank)
    })
    await expect(run).rejects.toThrow('mistake of rank 1')
    expect(ended).toHaveLength(2)
  })

  it('refuses synchronous calls', async () => {
    await runWorld({ size: 2 }, async (group) => {
      expect(
        thrownBy(() => {
          group.recvSync(new Float32Array(1), 1 - group.rank)
        }),
      ).toMatchObject({
        code: 'ERR_TSR_SYNC_UNSUPPORTED',
      })
      await Promise.resolve()
    })
  })

  it('runs all synchronous calls in a world of one', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const buffer = Float32Array.of(4)
      group.allReduceSync(buffer, { op: 'avg' })
      group.broadcastSync(buffer, 0)
      group.reduceSync(buffer, 0)
      group.barrierSync()
      expect(group.broadcastObjectSync({ a: 1 }, 0)).toEqual({ a: 1 })
      expect(group.allGatherObjectSync('x')).toEqual(['x'])
      expect(buffer[0]).toBe(4)
      await Promise.resolve()
    })
  })
})
