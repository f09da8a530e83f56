import { runWorld } from '@tsrun/distributed'
import { errorOf, eventually } from '../../support/outcome.ts'
import { SteppedWorld } from '../../support/stepped-world.ts'

describe('a monitored barrier', () => {
  it('releases no rank before the last has entered', async () => {
    let entered = 0
    await runWorld({ size: 5, seed: 1 }, async (group) => {
      for (let round = 1; round <= 10; round++) {
        for (let i = 0; i < (group.rank * 3 + round) % 5; i++) {
          await new Promise((resolve) => setImmediate(resolve))
        }
        entered++
        await group.monitoredBarrier()
        expect(entered).toBeGreaterThanOrEqual(5 * round)
      }
    })
  })

  it('reports all missing ranks to every rank, through rank 0', async () => {
    const errors = await runWorld({ size: 5, seed: 2 }, async (group) =>
      group.rank === 1 || group.rank === 3
        ? undefined
        : await errorOf(() => group.monitoredBarrier({ timeout: 1000 })),
    )
    expect(errors[0]).toMatchObject({
      code: 'ERR_TSR_BARRIER_MISSING',
      facts: { missing: '1, 3', milliseconds: 1000, rank: 0 },
    })
    for (const rank of [2, 4]) {
      expect(errors[rank]).toMatchObject({
        code: 'ERR_TSR_PEER_FAILED',
        message: expect.stringContaining('rank 1, 3 has not arrived'),
      })
    }
  })

  it('reports rank 0 if rank 0 is missing', async () => {
    const errors = await runWorld({ size: 2 }, async (group) =>
      group.rank === 0 ? undefined : await errorOf(() => group.monitoredBarrier({ timeout: 50 })),
    )
    expect(errors[1]).toMatchObject({
      code: 'ERR_TSR_OPERATION_TIMEOUT',
      message: expect.stringContaining('waiting for rank 0'),
    })
  })

  it('fails if a rank has left', async () => {
    for (const leavesFirst of [false, true]) {
      const world = new SteppedWorld(3)
      const [first, second] = world.groups
      if (leavesFirst) {
        await second!.destroy()
        world.drain()
      }
      const work = first!.monitoredBarrier({ timeout: 100 })
      const failed = errorOf(() => work)
      if (!leavesFirst) {
        await second!.destroy()
        world.drain()
      }
      await eventually(() => {
        world.ranks[0]!.engine.checkDeadlines()
        return work.isCompleted()
      })
      expect(await failed).toMatchObject({ code: 'ERR_TSR_PEER_LEFT', facts: { peer: 1 } })
    }
  })
})
