import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { errorOf, thrownBy } from '../../support/outcome.ts'

describe('newGroup', () => {
  it('may be called again by a rank that has timed out', async () => {
    await runWorld({ size: 2 }, async (world) => {
      const word = new Int32Array(1)
      if (world.rank === 1) {
        const failed = world.newGroup([0, 1], { timeout: 20 })
        await expect(failed).rejects.toMatchObject({ code: 'ERR_TSR_TIMEOUT' })
        await world.send(word, 0)
      } else await world.recv(word, 1)
      const group = await world.newGroup([0, 1], { timeout: 10_000 })
      const sum = Float32Array.of(world.rank + 1)
      await group.allReduce(sum)
      expect(sum[0]).toBe(3)
    })
  })

  it('is called only by its members, which can still use the world meanwhile', async () => {
    await runWorld({ size: 4, seed: 1 }, async (world) => {
      const isEven = world.rank % 2 === 0
      const members = isEven ? [0, 2] : [1, 3]
      const group = await world.newGroup(members)
      expect(group).toMatchObject({ size: 2, rank: world.rank >> 1, ranks: members })
      const buffer = Float32Array.of(world.rank)
      const all = Float32Array.of(1)
      await Promise.all([group.allReduce(buffer), world.allReduce(all)])
      expect(buffer[0]).toBe(isEven ? 2 : 4)
      expect(all[0]).toBe(4)
    })
  })

  it('numbers the ranks in the order of the list', async () => {
    await runWorld({ size: 3 }, async (world) => {
      const group = await world.newGroup([2, 0, 1], { name: 'turned' })
      expect(group.rank).toBe([1, 2, 0][world.rank])
      expect(group.name).toBe('turned')
      const gathered = new Int32Array(3)
      await group.allGather(gathered, Int32Array.of(world.rank))
      expect([...gathered]).toEqual([2, 0, 1])
      const buffer = Int32Array.of(world.rank)
      await group.broadcast(buffer, 0)
      expect(buffer[0]).toBe(2)
      expect(await group.allGatherObject(world.rank)).toEqual([2, 0, 1])
    })
  })

  it('called on a group takes ranks of that group', async () => {
    await runWorld({ size: 6 }, async (world) => {
      if (world.rank % 2 === 1) return
      const even = await world.newGroup([0, 2, 4])
      if (even.rank === 0) return
      const last = await even.newGroup([2, 1])
      expect(last.ranks).toEqual([4, 2])
      const gathered = new Int32Array(2)
      await last.allGather(gathered, Int32Array.of(world.rank))
      expect([...gathered]).toEqual([4, 2])
    })
  })

  it('with the same members creates independent groups', async () => {
    await runWorld({ size: 2, seed: 5 }, async (world) => {
      const [a, b] = await Promise.all([world.newGroup([0, 1]), world.newGroup([0, 1])])
      // in different orders on the two ranks
      const first = Float32Array.of(1)
      const second = Float32Array.of(10)
      if (world.rank === 0) await Promise.all([a.allReduce(first), b.allReduce(second)])
      else await Promise.all([b.allReduce(second), a.allReduce(first)])
      expect([first[0], second[0]]).toEqual([2, 20])
    })
  })

  it('may be called with a single rank', async () => {
    await runWorld({ size: 2 }, async (world) => {
      const self = await world.newGroup([world.rank])
      const buffer = Float32Array.of(3)
      await self.allReduce(buffer, { op: 'avg' })
      await self.barrier()
      expect(self).toMatchObject({ size: 1, rank: 0 })
      expect(buffer[0]).toBe(3)
    })
  })

  it('with one rank uses none of the slots in shared memory', async () => {
    await runWorld({ size: 2, hosts: [0, 0] }, async (world) => {
      const alone = await Promise.all(
        Array.from({ length: 8 }, (_, i) => world.newGroup([world.rank], { name: `own ${i}` })),
      )
      const both = (await world.newGroup([0, 1])) as ProcessGroup & { id: number }
      expect(both.id).toBe(1)
      const ids = alone.map((group) => (group as ProcessGroup & { id: number }).id)
      expect(new Set(ids).size).toBe(8)
      expect(Math.min(...ids)).toBeGreaterThan(1000)
      const sent = (): number =>
        both.linkStatistics().reduce((sum, { bytesSent }) => sum + bytesSent, 0)
      const before = sent()
      await both.allReduce(new Float32Array(100))
      expect(sent()).toBe(before)
    })
  })

  it.each<[string, readonly number[], RegExp]>([
    ['no rank', [], /empty/],
    ['a rank twice', [0, 1, 1], /named twice/],
    ['a rank that does not exist', [0, 7], /rank 7 is not in group world/],
    ['a negative rank', [0, -1], /rank -1 is not in/],
    ['other ranks than the caller', [1, 2], /rank 0 calls it, but is not among 1, 2/],
  ])('refuses a list with %s', async (_, members, message) => {
    await runWorld({ size: 3 }, async (world) => {
      if (world.rank !== 0) return
      const error = await errorOf(() => world.newGroup(members))
      expect(error).toMatchObject({
        code: 'ERR_TSR_GROUP_MEMBERS',
        message: expect.stringMatching(message),
      })
    })
  })

  it('refuses different orders on different ranks', async () => {
    await runWorld({ size: 2 }, async (world) => {
      const members = world.rank === 0 ? [0, 1] : [1, 0]
      const error = await errorOf(() => world.newGroup(members))
      if (world.rank === 0) expect(error).toBeUndefined()
      else expect(error?.message).toContain('rank 0 made it as 0, 1')
    })
  })

  it('with different orders also fails the members that have already created the group', async () => {
    await runWorld({ size: 3 }, async (world) => {
      const members = world.rank === 2 ? [2, 1, 0] : [0, 1, 2]
      const making = world.newGroup(members)
      if (world.rank === 2) {
        expect(await errorOf(() => making)).toMatchObject({ code: 'ERR_TSR_GROUP_MEMBERS' })
        return
      }
      const group = await making
      const error = await errorOf(() => group.barrier())
      expect(error?.message).toContain('rank 0 made it as 0, 1, 2, but rank 2 as 2, 1, 0')
    })
  })

  it('with names may be called in different orders, even for the same members', async () => {
    await runWorld({ size: 2 }, async (world) => {
      const names = world.rank === 0 ? ['a', 'b'] : ['b', 'a']
      const groups = new Map<string, ProcessGroup>()
      for (const name of names) groups.set(name, await world.newGroup([0, 1], { name }))
      for (const name of ['a', 'b']) {
        expect(await groups.get(name)!.allGatherObject(name)).toEqual([name, name])
      }
    })
  })

  it('names the rank that has not made the group', async () => {
    await runWorld({ size: 2 }, async (world) => {
      if (world.rank === 0) await world.newGroup([0, 1], { name: 'left' })
      await world.barrier()
      if (world.rank === 0) return
      const options = { name: 'right', timeout: 50 }
      const error = await errorOf(() => world.newGroup([0, 1], options))
      expect(error).toMatchObject({ code: 'ERR_TSR_TIMEOUT' })
      expect(error?.message).toContain('waiting for rank 0 to make group right')
    })
  })

  it('can be aborted', async () => {
    await runWorld({ size: 2 }, async (world) => {
      if (world.rank === 0) return
      const controller = new AbortController()
      const making = world.newGroup([0, 1], { signal: controller.signal })
      controller.abort()
      expect(await errorOf(() => making)).toMatchObject({ code: 'ERR_TSR_ABORTED' })
    })
  })

  it('fails at once if a member has left', async () => {
    await runWorld({ size: 2 }, async (world) => {
      if (world.rank === 0) {
        await world.destroy()
        return
      }
      await errorOf(() => world.barrier())
      const error = await errorOf(() => world.newGroup([0, 1]))
      expect(error).toMatchObject({ code: 'ERR_TSR_GROUP_MEMBERS' })
      expect(error?.message).toContain('rank 0 of the world is gone')
    })
  })

  it('names the group and the rank when a member does not call it', async () => {
    await runWorld({ size: 3 }, async (world) => {
      if (world.rank === 0) return
      const options = { name: 'evens', timeout: 50 }
      const error = await errorOf(() => world.newGroup([2, 0, 1], options))
      expect(error).toMatchObject({ code: 'ERR_TSR_TIMEOUT' })
      expect(error?.message).toContain('rank 0 to make group evens')
    })
  })

  it('names the rank in the first collective when another member does not call it', async () => {
    await runWorld({ size: 3 }, async (world) => {
      if (world.rank === 2) return
      const group = await world.newGroup([0, 1, 2], { name: 'all' })
      const error = await errorOf(() => group.barrier({ timeout: 50 }))
      expect(error?.code).toMatch(/OPERATION_TIMEOUT|PEER_FAILED/)
      expect(error?.message).toContain('of group all')
      expect(error?.message).toContain('rank 2')
    })
  })
})

describe('destroy', () => {
  it('refuses later calls, and does not affect other groups', async () => {
    await runWorld({ size: 2, seed: 2 }, async (world) => {
      const group = await world.newGroup([0, 1], { name: 'short-lived' })
      const last = group.allReduce(new Float32Array(50_000))
      await group.destroy()
      expect(last.isCompleted()).toBe(true)
      await last
      const calls: ((group: ProcessGroup) => unknown)[] = [
        (each) => each.barrier(),
        (each) => each.send(new Float32Array(1), 1 - each.rank),
        (each) => each.allGatherObject(1),
        (each) => each.sendObject(1, 1 - each.rank),
      ]
      for (const call of calls) {
        const error =
          thrownBy(() => call(group)) ?? (await errorOf(() => call(group) as PromiseLike<unknown>))
        expect(error).toMatchObject({
          code: 'ERR_TSR_GROUP_DESTROYED',
          facts: { group: 'short-lived' },
        })
      }
      await group.destroy()
      await world.barrier()
    })
  })

  it('of the world lets other ranks finish operations that do not need this rank', async () => {
    await runWorld({ size: 3 }, async (world) => {
      const pair = world.rank === 0 ? undefined : await world.newGroup([1, 2])
      if (world.rank === 0) {
        await world.send(new Float32Array(10).fill(6), 1)
        await world.destroy()
        return
      }
      const error = await errorOf(() => world.barrier())
      expect(error?.code).toMatch(/PEER_LEFT|PEER_FAILED/)
      await pair!.barrier()
    })
  })

  it('does not lose messages that were sent before it', async () => {
    await runWorld({ size: 2 }, async (world) => {
      if (world.rank === 0) {
        await world.send(new Float32Array(10).fill(6), 1)
        await world.destroy()
      } else {
        await new Promise((resolve) => setTimeout(resolve, 5))
        const buffer = new Float32Array(10)
        await world.recv(buffer, 0)
        expect(buffer.every((value) => value === 6)).toBe(true)
        const error = await errorOf(() => world.recv(buffer, 0))
        expect(error?.code).toBe('ERR_TSR_PEER_LEFT')
      }
    })
  })

  it('fails pending operations of other members, but keeps messages that have arrived', async () => {
    await runWorld({ size: 3, seed: 4 }, async (world) => {
      const group = await world.newGroup([0, 1, 2], { name: 'brief' })
      if (world.rank === 0) {
        await group.send(Float32Array.of(5), 1)
        await group.destroy()
        await world.barrier()
        return
      }
      if (world.rank === 1) {
        await world.recvObject(2)
        const buffer = new Float32Array(1)
        await group.recv(buffer, 0)
        expect(buffer[0]).toBe(5)
        const large = new Float32Array(100_000)
        for (const call of [
          () => group.recv(buffer, 0),
          () => group.send(large, 0),
          () => group.allReduce(large),
        ]) {
          const error = await errorOf(call)
          expect(error?.code).toMatch(/GROUP_LEFT|PEER_FAILED/)
          expect(error?.message).toContain('Rank 0 destroyed group brief')
        }
      } else {
        const pending = errorOf(() => group.recv(new Float32Array(1), 0))
        expect(await pending).toMatchObject({ code: 'ERR_TSR_GROUP_LEFT', facts: { peer: 0 } })
        await world.sendObject('go', 1)
        const any = await errorOf(() => group.allReduce(new Float32Array(100_000)))
        expect(any?.message).toContain('Rank 0 destroyed group brief')
      }
      await world.barrier()
    })
  })

  it('of the world ends the operations of its other groups', async () => {
    await runWorld({ size: 2 }, async (world) => {
      const pair = await world.newGroup([0, 1])
      const pending = errorOf(() => pair.recv(new Float32Array(1), 1 - world.rank))
      await world.destroy()
      expect((await pending)?.code).toMatch(/GROUP_DESTROYED|PEER_LEFT/)
    })
  })
})
