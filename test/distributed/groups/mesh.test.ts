import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import { errorOf, thrownBy } from '../support/outcome.ts'

describe('initDeviceMesh', () => {
  it('arranges the ranks with the last axis fastest', async () => {
    const meshes = await runWorld({ size: 12 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 3, tp: 2 }, world)
      return {
        coordinate: mesh.coordinate,
        groups: [mesh.dp.ranks, mesh.pp.ranks, mesh.tp.ranks],
        ranks: [mesh.dp.rank, mesh.pp.rank, mesh.tp.rank],
        name: mesh.pp.name,
        shape: mesh.shape,
        isWorld: mesh.world === world,
      }
    })
    for (const [rank, mesh] of meshes.entries()) {
      const [dp, pp, tp] = [Math.floor(rank / 6), Math.floor(rank / 2) % 3, rank % 2]
      expect(mesh.coordinate).toEqual({ dp, pp, tp })
      expect(mesh.ranks).toEqual([dp, pp, tp])
      expect(mesh.groups).toEqual([
        [pp * 2 + tp, 6 + pp * 2 + tp],
        [0, 1, 2].map((stage) => dp * 6 + stage * 2 + tp),
        [dp * 6 + pp * 2, dp * 6 + pp * 2 + 1],
      ])
      expect(mesh.shape).toEqual({ dp: 2, pp: 3, tp: 2 })
      expect(mesh.isWorld).toBe(true)
    }
    expect(meshes[3]!.name).toBe('pp [1,3,5]')
  })

  it('knows the neighbours of a rank in the ring of each group', async () => {
    await runWorld({ size: 6 }, async (world) => {
      const { dp, pp } = await initDeviceMesh({ dp: 2, pp: 3 }, world)
      const { rank } = world
      expect([world.previous, world.next]).toEqual([(rank + 5) % 6, (rank + 1) % 6])
      expect([pp.previous, pp.next]).toEqual([(rank + 2) % 3, (rank + 1) % 3])
      expect([dp.previous, dp.next]).toEqual([1 - dp.rank, 1 - dp.rank])
      const received = new Int32Array(1)
      await Promise.all([pp.send(Int32Array.of(rank), pp.next), pp.recv(received, pp.previous)])
      expect(received[0]).toBe(pp.globalRank(pp.previous))
    })
    await runWorld({ size: 1 }, async ({ next, previous }) => {
      expect([next, previous]).toEqual([0, 0])
      await Promise.resolve()
    })
  })

  it('gives an axis of size 1 a group of one rank, whose collectives change nothing', async () => {
    await runWorld({ size: 2 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 1, pp: 2, tp: 1 }, world)
      expect([mesh.dp.size, mesh.pp.size, mesh.tp.size]).toEqual([1, 2, 1])
      const buffer = Float32Array.of(5)
      await mesh.dp.allReduce(buffer)
      await mesh.tp.allReduce(buffer, { op: 'avg' })
      expect(buffer[0]).toBe(5)
      await mesh.pp.allReduce(buffer)
      expect(buffer[0]).toBe(10)
    })
  })

  it('reduces along each axis', async () => {
    await runWorld({ size: 6 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 3, tp: 2 }, world)
      const [dp, tp] = [Float32Array.of(world.rank), Float32Array.of(world.rank)]
      await Promise.all([mesh.dp.allReduce(dp), mesh.tp.allReduce(tp)])
      expect(dp[0]).toBe(world.rank % 2 === 0 ? 0 + 2 + 4 : 1 + 3 + 5)
      expect(tp[0]).toBe(4 * mesh.coordinate.dp + 1)
    })
  })

  it('can divide any group', async () => {
    await runWorld({ size: 4 }, async (world) => {
      const half = await initDeviceMesh({ node: 2, local: 2 }, world)
      const inner = await initDeviceMesh({ x: 2 }, half.local)
      expect(inner.x.ranks).toEqual(half.local.ranks)
      await inner.x.barrier()
    })
  })

  it('returns parts along several axes as flattened groups or as meshes', async () => {
    await runWorld({ size: 8, seed: 3 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 2, tp: 2 }, world)
      expect([mesh.axes, mesh.size]).toEqual([['dp', 'pp', 'tp'], 8])
      const part = await mesh.get('dp', 'tp')
      const { pp } = mesh.coordinate
      const through = [0, 1, 4, 5].map((rank) => rank + 2 * pp)
      expect(part.world.ranks).toEqual(through)
      expect([part.axes, part.size, part.shape]).toEqual([['dp', 'tp'], 4, { dp: 2, tp: 2 }])
      expect(part.tp).toBe(mesh.tp)
      expect(part.rankAt(part.coordinate)).toBe(part.world.rank)
      expect(await part.world.allGatherObject(world.rank)).toEqual(through)
      // in another order the other axis is the fastest
      const turned = await mesh.get('tp', 'dp')
      expect(turned.world.ranks).toEqual([0, 4, 1, 5].map((rank) => rank + 2 * pp))
      const inner = await part.get('tp')
      expect(inner.world).toBe(mesh.tp)
      expect(await mesh.get('dp', 'tp')).toBe(part)
      expect((await mesh.get('dp', 'pp', 'tp')).world).toBe(world)
      await expect(mesh.get()).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      await expect(mesh.get('dp', 'dp')).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      await expect(mesh.get('ep' as 'dp')).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
    })
  })

  it('translates between coordinates and ranks', async () => {
    await runWorld({ size: 6 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, tp: 3 }, world)
      expect(mesh.rankAt(mesh.coordinate)).toBe(world.rank)
      expect(mesh.rankAt({ dp: 1, tp: 2 })).toBe(5)
      expect(mesh.rankAt({ tp: 0 })).toBe(3 * mesh.coordinate.dp)
      for (const place of [{ dp: 2 }, { dp: -1 }, { tp: 0.5 }, { ep: 0 }]) {
        const error = thrownBy(() => mesh.rankAt(place))
        expect(error?.code).toBe('ERR_TSR_ARGUMENT')
      }
    })
  })

  it('names the axis and the rank that did not call it, and can be aborted', async () => {
    await runWorld({ size: 2 }, async (world) => {
      if (world.rank === 0) return
      const error = await errorOf(() => initDeviceMesh({ tp: 2 }, world, { timeout: 50 }))
      expect(error).toMatchObject({ code: 'ERR_TSR_TIMEOUT' })
      expect(error?.message).toContain('waiting for rank 0 to make group tp [0,1]')
      const signal = AbortSignal.abort()
      const aborted = await errorOf(() => initDeviceMesh({ tp: 2 }, world, { signal }))
      expect(aborted?.code).toBe('ERR_TSR_ABORTED')
    })
  })

  it.each([{ dp: 2, tp: 3 }, { dp: 3 }, {}])('refuses %j for four ranks', async (shape) => {
    await runWorld({ size: 4 }, async (world) => {
      const error = await errorOf(() => initDeviceMesh(shape as Record<string, number>, world))
      expect(error).toMatchObject({ code: 'ERR_TSR_MESH_SHAPE', facts: { size: 4 } })
      expect(error?.message).toContain(JSON.stringify(shape))
    })
  })

  it.each([
    { dp: 0, tp: 4 },
    { dp: -2, tp: -2 },
    { dp: 1.5 },
    { world: 4 },
    { shape: 4 },
    { get: 4 },
    { then: 4 },
    { 0: 4 },
  ])('refuses the axes %j', async (shape) => {
    await runWorld({ size: 4 }, async (world) => {
      const error = await errorOf(() => initDeviceMesh(shape as Record<string, number>, world))
      expect(error?.code).toBe('ERR_TSR_ARGUMENT')
    })
  })
})
