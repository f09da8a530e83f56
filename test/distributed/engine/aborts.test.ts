import { runWorld } from '@tsrun/distributed'
import { errorOf, turns } from '../support/outcome.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

const LARGE = 200_000

describe('an abort', () => {
  const aborted = { signal: AbortSignal.abort() }

  it('before a message starts prevents any transfer', async () => {
    const world = new SteppedWorld(2)
    const [a, b] = world.groups
    await expect(a!.send(Float32Array.of(1), 1, aborted)).rejects.toMatchObject({
      code: 'ERR_TSR_OPERATION_ABORTED',
    })
    const buffer = new Float32Array(1)
    await world.finish([a!.send(Float32Array.of(2), 1), b!.recv(buffer, 0)])
    expect(buffer[0]).toBe(2)
    await expect(b!.recv(buffer, 0, aborted)).rejects.toMatchObject({
      code: 'ERR_TSR_OPERATION_ABORTED',
    })
    await world.finish([a!.send(Float32Array.of(3), 1), b!.recv(buffer, 0)])
    expect(buffer[0]).toBe(3)
  })

  it('before a collective starts fails it on every rank', async () => {
    const errors = await runWorld({ size: 3, seed: 8 }, async (group) =>
      errorOf(() => group.barrier(group.rank === 1 ? aborted : {})),
    )
    expect(errors.map((error) => error?.code)).toEqual([
      'ERR_TSR_PEER_FAILED',
      'ERR_TSR_OPERATION_ABORTED',
      'ERR_TSR_PEER_FAILED',
    ])
    expect(errors[0]?.message).toContain('was aborted')
  })

  it('also fails a collective in a group of one', async () => {
    const error = await runWorld({ size: 1 }, (group) =>
      errorOf(() => group.allReduce(new Float32Array(1), aborted)),
    )
    expect(error[0]?.code).toBe('ERR_TSR_OPERATION_ABORTED')
  })

  it('ends a waiting receive, and the next receive gets the next message', async () => {
    await runWorld({ size: 2, seed: 6 }, async (group) => {
      const buffer = new Float32Array(1)
      if (group.rank === 0) {
        const controller = new AbortController()
        const waiting = group.recv(buffer, 1, { signal: controller.signal })
        await turns(3)
        controller.abort()
        expect((await errorOf(() => waiting))?.code).toBe('ERR_TSR_OPERATION_ABORTED')
        await group.barrier()
        await group.recv(buffer, 1)
        expect(buffer[0]).toBe(2)
      } else {
        await group.barrier()
        await group.send(Float32Array.of(1), 0)
        await group.send(Float32Array.of(2), 0)
      }
    })
  })

  it('after the end of an operation changes nothing', async () => {
    const controller = new AbortController()
    await runWorld({ size: 2 }, async (group) => {
      await group.barrier({ signal: controller.signal })
      controller.abort()
      await group.barrier()
    })
  })

  it('of a send fails only the matching receive', async () => {
    for (const length of [4000, LARGE]) {
      const world = new SteppedWorld(2)
      const [a, b] = world.groups
      // no room for more unexpected messages: the small one has to wait as well
      const flood = Array.from({ length: 20 }, () => a!.send(new Float32Array(4000), 1, { tag: 1 }))
      const controller = new AbortController()
      const send = a!.send(new Float32Array(length), 1, { signal: controller.signal })
      world.drain()
      expect(send.isCompleted()).toBe(false)
      controller.abort()
      await expect(send).rejects.toMatchObject({ code: 'ERR_TSR_OPERATION_ABORTED' })
      const [error] = await world.outcomes([b!.recv(new Float32Array(length), 0)])
      expect(error).toMatchObject({ code: 'ERR_TSR_PEER_FAILED', facts: { peer: 0 } })
      const next = new Float32Array(length)
      await world.finish([a!.send(new Float32Array(length).fill(5), 1), b!.recv(next, 0)])
      expect(next.every((value) => value === 5)).toBe(true)
      const rest = flood.map(() => b!.recv(new Float32Array(4000), 0, { tag: 1 }))
      await world.finish([...flood, ...rest])
    }
  })

  it('of a receive does not fail a send with the same sequence number', async () => {
    const world = new SteppedWorld(2)
    const [a, b] = world.groups
    const controller = new AbortController()
    const send = a!.send(new Float32Array(LARGE).fill(1), 1)
    const receive = a!.recv(new Float32Array(LARGE), 1, { signal: controller.signal })
    world.drain()
    controller.abort()
    await expect(receive).rejects.toMatchObject({ code: 'ERR_TSR_OPERATION_ABORTED' })
    const buffer = new Float32Array(LARGE)
    await world.finish([send, b!.recv(buffer, 0)])
    expect(buffer.every((value) => value === 1)).toBe(true)
  })
})

/** Moves the ranks until part of a large message is under way: its end is still far. */
function moveSome(world: SteppedWorld): void {
  for (let i = 0; i < 6; i++) world.step()
}

describe('an abort during a transfer', () => {
  it('by the receiver ends all writes to its memory', async () => {
    const world = new SteppedWorld(2)
    const [a, b] = world.groups
    const controller = new AbortController()
    const target = b!.alloc('float32', LARGE)
    const send = a!.send(new Float32Array(LARGE).fill(1), 1)
    const receive = b!.recv(target, 0, { signal: controller.signal })
    moveSome(world)
    expect(target[0]).toBe(1)
    expect(target[LARGE - 1]).toBe(0)
    controller.abort()
    await expect(receive).rejects.toMatchObject({ code: 'ERR_TSR_OPERATION_ABORTED' })
    b!.free(target)
    const other = b!.alloc('float32', LARGE)
    await world.finish([send])
    world.drain()
    expect(other.every((value) => value === 0)).toBe(true)
    const next = new Float32Array(2)
    await world.finish([a!.send(Float32Array.of(3, 4), 1), b!.recv(next, 0)])
    expect([...next]).toEqual([3, 4])
  })

  it('by the sender does not stop the transfer, so the receiver gets the whole message', async () => {
    const world = new SteppedWorld(2)
    const [a, b] = world.groups
    const controller = new AbortController()
    const source = a!.alloc('float32', LARGE).fill(1)
    const used = world.ranks[0]!.engine.memory.used
    const send = a!.send(source, 1, { signal: controller.signal })
    const target = new Float32Array(LARGE)
    const receive = b!.recv(target, 0)
    moveSome(world)
    controller.abort()
    await expect(send).rejects.toMatchObject({ code: 'ERR_TSR_OPERATION_ABORTED' })
    source.fill(9)
    await world.finish([receive])
    expect(target.every((value) => value === 1)).toBe(true)
    expect(world.ranks[0]!.engine.memory.used - used).toBeLessThan(16 * 1024)
  })

  it('closes the connection if there is no memory for the rest of the message', async () => {
    const world = new SteppedWorld(2, { memory: 8 * 1024 * 1024 })
    const [a, b] = world.groups
    const controller = new AbortController()
    const scratch = world.ranks[0]!.engine.memory
    scratch.allocate(4 * 1024 * 1024 - scratch.used - 300 * 1024)
    const send = a!.send(a!.alloc('float32', LARGE), 1, { signal: controller.signal })
    const receive = b!.recv(new Float32Array(LARGE), 0)
    moveSome(world)
    controller.abort()
    await expect(send).rejects.toMatchObject({ code: 'ERR_TSR_OPERATION_ABORTED' })
    const [error] = await world.outcomes([receive])
    expect(error).toMatchObject({ code: 'ERR_TSR_PEER_LOST' })
  })

  it.each(['ring', 'recursive-doubling', 'halving-doubling'] as const)(
    'fails the collective on every rank, but does not affect other groups (%s)',
    async (algorithm) => {
      for (let steps = 1; steps < 16; steps++) {
        const world = new SteppedWorld(4, { memory: 32 * 1024 * 1024 })
        const apart = Promise.all(world.groups.map((group) => group.newGroup([0, 1, 2, 3])))
        const others = await apart
        const controller = new AbortController()
        const results = world.groups.map((group) => new Float32Array(LARGE).fill(group.rank))
        const broken = world.groups.map((group, rank) =>
          group.allReduce(results[rank]!, {
            algorithm,
            ...(rank === 1 ? { signal: controller.signal } : {}),
          }),
        )
        const buffers = others.map((group) => new Float32Array(LARGE).fill(group.rank))
        const healthy = others.map((group, rank) => group.allReduce(buffers[rank]!))
        for (let i = 0; i < steps; i++) world.step()
        expect(broken[1]!.isCompleted()).toBe(false)
        controller.abort()
        const errors = (await world.outcomes(broken)) as ({ code: string } | undefined)[]
        expect(errors[1]?.code).toBe('ERR_TSR_OPERATION_ABORTED')
        // a rank that had all it needs from the others may have its result, and then the right one
        for (const rank of [0, 2, 3]) {
          if (errors[rank] === undefined) {
            expect(results[rank]!.every((value) => value === 6)).toBe(true)
          } else {
            expect(errors[rank].code).toBe('ERR_TSR_PEER_FAILED')
          }
        }
        await world.finish(healthy)
        for (const buffer of buffers) expect(buffer.every((value) => value === 6)).toBe(true)
      }
    },
  )
})
