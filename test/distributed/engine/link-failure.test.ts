import type { EngineMemory } from '../../internals/distributed/engine.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

/** Leaves no room for a single frame. */
function fill(memory: EngineMemory): void {
  for (const payload of [16_384, 4000, 1000, 200, 100, 0]) {
    try {
      for (;;) memory.takeFrameBlock(payload)
    } catch {
      // full
    }
  }
}

describe('a rank whose engine memory is full', () => {
  it('closes the link that needs more, and reports why', async () => {
    const world = new SteppedWorld(3, { memory: 4 * 1024 * 1024 })
    const [a, b, c] = world.groups
    const works = [b!.recv(new Int32Array(1), 2), a!.recv(new Int32Array(1), 1)]
    world.drain()
    fill(world.ranks[1]!.engine.memory)
    // No receive expects it, so it has to be kept.
    await a!.send(new Int32Array(100), 1)
    const errors = await world.outcomes([...works, c!.recv(new Int32Array(1), 0)])
    expect(errors[0]).toMatchObject({ code: 'ERR_TSR_ENGINE_MEMORY', facts: { rank: 1 } })
    expect(errors[1]).toMatchObject({ code: 'ERR_TSR_PEER_LOST' })
    expect(errors[2]).toHaveProperty('code')
    // The engine keeps running.
    const [later] = await world.outcomes([b!.recv(new Int32Array(1), 2)])
    expect(later).toMatchObject({ code: 'ERR_TSR_GROUP_FAILED' })
  })

  it('leaves no rank waiting, even if it cannot report the failure', async () => {
    const world = new SteppedWorld(3, { memory: 4 * 1024 * 1024 })
    const [a, b, c] = world.groups
    const works = [
      b!.recv(new Int32Array(1), 0),
      a!.recv(new Int32Array(1), 1),
      c!.recv(new Int32Array(1), 1),
    ]
    world.drain()
    fill(world.ranks[1]!.engine.memory)
    // too long for the receive, which fails the group
    const sent = a!.send(new Int32Array(50_000), 1)
    const errors = await world.outcomes([...works, sent])
    expect(errors[0]).toMatchObject({ code: 'ERR_TSR_MISMATCH' })
    for (const error of errors) expect(error).toHaveProperty('code')
  })
})
