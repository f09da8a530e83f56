import type { TsrError } from '@tsrun/core'
import {
  EAGER_LIMIT,
  frameKinds,
  HEADER_BYTES,
  spaces,
  writeHeader,
  type FrameHeader,
} from '../../internals/distributed/engine.ts'
import { errorOf } from '../support/outcome.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

describe('a lost rank', () => {
  it('fails all operations of its groups, even those between surviving ranks', async () => {
    const world = new SteppedWorld(3)
    const [a, b] = world.groups
    const pair = await Promise.all([a!.newGroup([0, 1]), b!.newGroup([0, 1])])
    const works = [
      a!.recv(new Float32Array(1), 1),
      a!.recv(new Float32Array(1), 2),
      b!.send(new Float32Array(50_000), 2),
      a!.allReduce(new Float32Array(50_000)),
      b!.allReduce(new Float32Array(50_000)),
    ]
    const [first, second] = [Float32Array.of(1), Float32Array.of(2)]
    const apart = [pair[0].allReduce(first), pair[1].recvObject(0)]
    world.drain()
    world.ranks[2]!.transport.close()
    const errors = await world.outcomes(works)
    for (const error of errors as TsrError[]) {
      // A rank that has not seen it yet may learn it from the other.
      expect(error.code).toMatch(/ERR_TSR_(PEER_LOST|PEER_FAILED|GROUP_FAILED)/)
      expect(error.message).toContain('Rank 2 is gone (its in-process transport was closed)')
      expect(error.message.match(/Look for|Look at the first/g)).toHaveLength(1)
    }
    expect(errors[1]).toMatchObject({ code: 'ERR_TSR_PEER_LOST', facts: { peer: 2 } })
    // The group of the others still works.
    await world.finish([...apart, pair[1].allReduce(second), pair[0].sendObject('x', 1)])
    expect(second[0]).toBe(3)
    const refused = await errorOf(() => a!.send(new Float32Array(1), 1))
    expect(refused).toMatchObject({ code: 'ERR_TSR_GROUP_FAILED' })
    expect(refused?.message).toContain('Rank 2 is gone')
  })

  it('frees the memory of frames that were queued for it', async () => {
    const world = new SteppedWorld(2)
    const [a] = world.groups
    const { memory } = world.ranks[0]!.engine
    const before = memory.used
    const works = Array.from({ length: 50 }, () => a!.allReduce(new Float32Array(20_000)))
    world.drain([0])
    expect(memory.used - before).toBeGreaterThan(3_000_000)
    world.ranks[1]!.transport.close()
    await world.outcomes(works)
    // but for the free blocks that are kept for the next frames
    expect(memory.used - before).toBeLessThan(500_000)
  })

  it('is reported if a peer sends bytes other than a frame', async () => {
    const world = new SteppedWorld(2)
    const [a] = world.groups
    const { transport, engine } = world.ranks[1]!
    const receive = a!.recv(new Float32Array(4), 1)
    const at = engine.memory.allocate(100)
    engine.heap.bytes.fill(65, at, at + 100)
    transport.trySend(0, at, 100, false)
    const [error] = await world.outcomes([receive])
    expect(error).toMatchObject({ code: 'ERR_TSR_PEER_LOST' })
    expect((error as Error).message).toContain('it sent bytes that are no frame')
  })

  it.each([
    ['an eager payload beyond the limit', { kind: frameKinds.eager, bytes: EAGER_LIMIT + 1 }],
    ['a fault beyond the limit', { kind: frameKinds.fault, bytes: 2 ** 40 }],
    ['an unknown kind', { kind: 99, bytes: 0 }],
    ['an unknown space', { kind: frameKinds.eager, space: 7, bytes: 0 }],
    ['a group out of range', { kind: frameKinds.eager, group: 2 ** 20, bytes: 0 }],
  ])(
    'is reported if a frame header announces %s, and no memory is allocated for it',
    async (_, odd) => {
      const world = new SteppedWorld(2)
      const [a] = world.groups
      const receive = a!.recv(new Float32Array(4), 1)
      const { memory } = world.ranks[0]!.engine
      const before = memory.used
      sendHeader(world, odd)
      const [error] = await world.outcomes([receive])
      expect(error).toMatchObject({ code: 'ERR_TSR_PEER_LOST' })
      expect((error as Error).message).toContain('it sent bytes that are no frame')
      expect(memory.used).toBeLessThanOrEqual(before)
    },
  )

  it('cannot write beyond the buffer of the receive that its frame names', async () => {
    const world = new SteppedWorld(2)
    const [a] = world.groups
    const buffer = a!.alloc('float32', 10_000)
    const neighbour = a!.alloc('float32', 10_000).fill(7)
    const receive = a!.recv(buffer, 1)
    world.drain([0])
    sendHeader(world, { kind: frameKinds.data, space: spaces.message, bytes: 80_000 })
    world.ranks[1]!.transport.trySend(
      0,
      world.ranks[1]!.engine.memory.allocate(64_000),
      64_000,
      false,
    )
    const [error] = await world.outcomes([receive])
    expect(error).toMatchObject({ code: 'ERR_TSR_MISMATCH' })
    expect(buffer.every((value) => value === 0)).toBe(true)
    expect(neighbour.every((value) => value === 7)).toBe(true)
  })
})

/** Rank 1 sends a header of its own making to rank 0. */
function sendHeader(world: SteppedWorld, odd: Partial<FrameHeader>): void {
  const { transport, engine } = world.ranks[1]!
  const at = engine.memory.allocate(HEADER_BYTES)
  const fingerprint = { kind: 0, root: 0, count: 0 }
  const place = { space: 0, group: 0, sequence: 0, index: 0 }
  const rest = { kind: 1, bytes: 0, credit: 0, place: 0, guard: 0 }
  writeHeader(engine.heap, at, { ...place, ...rest, fingerprint, ...odd })
  transport.trySend(0, at, HEADER_BYTES, false)
}

describe('a rank that has left', () => {
  it('fails only the operations that need that rank', async () => {
    const world = new SteppedWorld(3)
    const [a, b, c] = world.groups
    const needed = a!.recv(new Float32Array(1), 2)
    const apart = a!.recv(new Float32Array(1), 1)
    await c!.destroy()
    world.drain()
    await expect(needed).rejects.toMatchObject({ code: 'ERR_TSR_PEER_LEFT', facts: { peer: 2 } })
    await world.finish([apart, b!.send(new Float32Array(1), 0)])
    const codes = await world.outcomes([a!.barrier(), b!.barrier()])
    for (const error of codes) {
      expect((error as { code: string }).code).toMatch(/PEER_LEFT|PEER_FAILED/)
    }
  })
})
