import { runWorld } from '@tsrun/distributed'
import type { Call } from '../support/failing-call.ts'
import { errorOf } from '../support/outcome.ts'
import { SteppedWorld } from '../support/stepped-world.ts'
import { newArray } from '../support/values.ts'
import { describeMismatches } from './support/mismatches.ts'

const allReduce =
  (length: number): Call =>
  (group) =>
    group.allReduce(newArray('float32', length))

// mismatch.nightly.test.ts has more sizes and interleavings.
describeMismatches([3], 4)

describe('after a mismatch', () => {
  it('later operations fail too, and earlier ones complete', async () => {
    const world = new SteppedWorld(3)
    const [a, b, c] = world.groups
    const before = [a!.allReduce(Float32Array.of(1)), b!.allReduce(Float32Array.of(1))]
    const broken = [a!.barrier(), b!.broadcast(new Float32Array(2), 0)]
    const behind = [a!.allReduce(new Float32Array(3)), b!.allReduce(new Float32Array(3))]
    const message = a!.recv(new Float32Array(1), 1)
    world.drain()
    for (const work of [...broken, ...behind, message]) {
      await expect(work).rejects.toMatchObject({ code: 'ERR_TSR_MISMATCH' })
    }
    expect(before.some((work) => work.isCompleted())).toBe(false)
    await world.finish([...before, c!.allReduce(Float32Array.of(1))])
    await expect(c!.barrier()).rejects.toMatchObject({ code: 'ERR_TSR_GROUP_FAILED' })
    expect((await errorOf(() => c!.barrier()))?.message).toContain('broadcast')
    await expect(a!.send(new Float32Array(1), 1)).rejects.toMatchObject({
      code: 'ERR_TSR_MISMATCH',
    })
  })

  it('a rank that creates the group later gets an error', async () => {
    await runWorld({ size: 3, seed: 1 }, async (group) => {
      const barriers = async (): Promise<void> => {
        for (let i = 0; i < 20; i++) await group.barrier()
      }
      if (group.rank === 2) await barriers()
      const all = await group.newGroup([0, 1, 2])
      const call: Call = all.rank === 0 ? allReduce(1) : (each) => each.barrier()
      const error = await errorOf(() => call(all))
      expect(error?.code).toMatch(/MISMATCH|PEER_FAILED|GROUP_FAILED/)
      if (group.rank !== 2) await barriers()
    })
  })
})
