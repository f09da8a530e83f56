import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { createMemory, heapOf, instantiateKernels } from '../../internals/distributed/arena.ts'
import { MappedSlots, SLOTS_BYTES } from '../../internals/distributed/transports.ts'
import { errorOf } from '../support/outcome.ts'
import { valueOf } from '../support/values.ts'

const together = { size: 4, hosts: [0, 0, 0, 0] }

/** The algorithm that the engine chose, from the error of a call that no other rank makes. */
async function choiceOf(
  group: ProcessGroup,
  call: (group: ProcessGroup, timeout: number) => PromiseLike<unknown>,
): Promise<string | undefined> {
  const error = await errorOf(() => call(group, 20))
  return / by (\S+)/.exec(error?.message ?? '')?.[1]
}

describe('small collectives', () => {
  it.each([
    { what: 'of 4 KiB', length: 1024, algorithm: 'flat' },
    { what: 'that do not fit', length: 1025, algorithm: 'window' },
  ])('$what use the algorithm $algorithm', async ({ length, algorithm }) => {
    const choices = await runWorld(together, async (group) =>
      group.rank === 0
        ? await choiceOf(group, (each, timeout) =>
            each.allReduce(new Float32Array(length), { timeout }),
          )
        : undefined,
    )
    expect(choices[0]).toBe(algorithm)
  })

  it('exchange messages if not all ranks share memory', async () => {
    for (const hosts of [
      [0, 1],
      [0, 1, 1],
    ]) {
      const choices = await runWorld({ size: hosts.length, hosts }, async (group) =>
        group.rank === 0
          ? await choiceOf(group, (each, timeout) =>
              each.allReduce(new Float32Array(4), { timeout }),
            )
          : undefined,
      )
      expect(choices[0]).not.toBe('flat')
    }
  })

  it('exchange messages in groups that have no slots left', async () => {
    await runWorld(together, async (world) => {
      for (let i = 0; i < 6; i++) {
        const group = await world.newGroup([0, 1, 2, 3])
        const buffer = Float32Array.of(world.rank)
        await group.allReduce(buffer)
        expect(buffer[0]).toBe(6)
        if (i % 2 === 0) await group.destroy()
      }
    })
  })

  it('keep their order if many run at once, also on overlapping groups', async () => {
    await runWorld({ ...together, seed: 3 }, async (world) => {
      const pair = await world.newGroup(world.rank < 2 ? [0, 1] : [2, 3])
      const buffers = Array.from({ length: 60 }, (_, i) =>
        Float64Array.of(valueOf('float64', world.rank, i) as number),
      )
      // Half of the ranks begin with the other group.
      const groups = world.rank % 2 === 0 ? [world, pair] : [pair, world]
      const works = groups.flatMap((group) =>
        buffers.flatMap((buffer, i) =>
          i % 2 === (group === world ? 0 : 1) ? [group.allReduce(buffer)] : [],
        ),
      )
      await Promise.all(works)
      const sumOf = (ranks: readonly number[], i: number): number =>
        ranks.reduce((sum, rank) => sum + (valueOf('float64', rank, i) as number), 0)
      expect(buffers.map(([sum]) => sum)).toEqual(
        buffers.map((_, i) => sumOf(i % 2 === 0 ? world.ranks : pair.ranks, i)),
      )
    })
  })

  it('let the root run at most one epoch ahead of the other ranks', async () => {
    await runWorld({ ...together, seed: 5 }, async (group) => {
      for (let i = 0; i < 50; i++) {
        const buffer = Int32Array.of(group.rank === 1 ? i : -1)
        await group.broadcast(buffer, 1)
        expect(buffer[0]).toBe(i)
      }
    })
  })

  it('name missing ranks when they time out, and ranks that have left', async () => {
    const errors = await runWorld(together, async (group) => {
      if (group.rank === 2) return undefined
      return await errorOf(() => group.barrier(group.rank === 0 ? { timeout: 50 } : {}))
    })
    expect(errors[0]).toMatchObject({ code: 'ERR_TSR_OPERATION_TIMEOUT', facts: { peers: '2' } })
    expect(errors[1]).toMatchObject({ code: 'ERR_TSR_PEER_FAILED', facts: { peer: 0 } })

    const left = await runWorld({ size: 2, hosts: [0, 0] }, async (world) => {
      const group = await world.newGroup([0, 1])
      if (world.rank === 1) {
        await group.barrier()
        await group.destroy()
        return undefined
      }
      await group.barrier()
      return await errorOf(() => group.barrier())
    })
    expect(left[0]).toMatchObject({ code: 'ERR_TSR_GROUP_LEFT', facts: { peer: 1 } })
  })

  it('end when they are aborted midway, and other groups continue', async () => {
    await runWorld(together, async (world) => {
      const group = await world.newGroup([0, 1, 2, 3])
      if (world.rank === 3) {
        await world.barrier()
        expect(await errorOf(() => group.barrier())).toBeDefined()
      } else {
        const controller = new AbortController()
        const work = errorOf(() => group.barrier({ signal: controller.signal }))
        if (world.rank === 0) controller.abort()
        expect((await work)?.code).toMatch(/OPERATION_ABORTED|PEER_FAILED|GROUP_FAILED/)
        await world.barrier()
      }
      const buffer = Float32Array.of(1)
      await world.allReduce(buffer)
      expect(buffer[0]).toBe(4)
    })
  })
})

describe('slots in shared memory', () => {
  const heap = heapOf(createMemory(4 * 1024 * 1024))
  const kernels = instantiateKernels(heap.memory)
  const woken: number[] = []
  const sides = [0, 1].map(
    (rank) =>
      new MappedSlots({
        heap,
        rank,
        places: [0, SLOTS_BYTES],
        kernels,
        wake: (peer) => woken.push(peer),
        looks: 3,
      }),
  )
  const header = {
    sequence: 4_000_000_000,
    fingerprint: { kind: (14 << 24) | 5, root: 0xffff_ffff, count: 1024 },
  }

  it('make bytes and headers visible to the other ranks', () => {
    const [ours, theirs] = sides
    heap.bytes.fill(7, 1_000_000, 1_016_384)
    expect(theirs!.hasNews()).toBe(false)
    ours!.publish(2, 1, header, 1_000_000, 16_384)
    expect([theirs!.hasNews(), theirs!.hasNews()]).toEqual([true, false])
    const entries = [1, 2].map((epoch) => theirs!.entryOf(0, 2, epoch, header, false))
    expect(entries).toEqual([1, 0])
    expect(theirs!.headerOf(0, 2, 1)).toEqual(header)
    const at = theirs!.slotOf(0, 2, 1)
    expect(heap.bytes.subarray(at, at + 16_384).every((byte) => byte === 7)).toBe(true)
  })

  it('publish the position of a buffer and the progress of its rank', () => {
    const [ours, theirs] = sides
    const entries = (mine = header): number[] =>
      [true, false].map((spins) => theirs!.entryOf(0, 30, 1, mine, spins))
    expect(entries()).toEqual([0, 0])
    ours!.expose(30, 1, header, 3_000_000)
    expect(entries()).toEqual([1, 1])
    expect(entries({ ...header, sequence: 5 })).toEqual([2, 2])
    for (const name of ['kind', 'root', 'count'] as const) {
      const fingerprint = { ...header.fingerprint, [name]: 7 }
      expect(entries({ ...header, fingerprint })).toEqual([2, 2])
    }
    expect(theirs!.exposedAt(0, 30, 1)).toBe(3_000_000)
    ours!.advance(30, 5)
    for (const spins of [true, false]) {
      const completed = [5, 6].map((steps) => theirs!.hasCompleted(0, 30, steps, spins))
      expect(completed).toEqual([true, false])
    }
    expect(theirs!.hasWithdrawn(0, 30, 1)).toBe(false)
    ours!.withdraw(30, 1)
    expect([1, 2].map((epoch) => theirs!.hasWithdrawn(0, 30, epoch))).toEqual([true, false])
    expect(theirs!.hasNews()).toBe(true)
  })

  it('wake a sleeping rank once when another rank publishes', () => {
    const [ours, theirs] = sides
    theirs!.announceSleep(true)
    ours!.advance(3, 1)
    expect(woken).toEqual([])
    theirs!.isAwaited = true
    theirs!.announceSleep(true)
    ours!.advance(3, 2)
    ours!.advance(3, 3)
    expect(woken).toEqual([1])
    theirs!.announceSleep(true)
    theirs!.announceSleep(false)
    ours!.advance(3, 4)
    expect(woken).toEqual([1])
  })

  it('keep the previous epoch, and are separate for every group', () => {
    const [ours, theirs] = sides
    const slots = Array.from({ length: ours!.groups }, (_, group) =>
      [0, 1].flatMap((epoch) => [0, 1].map((rank) => theirs!.slotOf(rank, group, epoch))),
    ).flat()
    const sorted = slots.sort((a, b) => a - b)
    for (const [i, slot] of sorted.entries()) {
      if (i > 0) expect(slot - sorted[i - 1]!).toBeGreaterThanOrEqual(ours!.slotBytes)
    }
    ours!.publish(2, 2, { ...header, sequence: 1 }, 0, 0)
    expect(theirs!.headerOf(0, 2, 1)).toEqual(header)
    expect(theirs!.entryOf(0, 1, 1, header, false)).toBe(0)
  })
})
