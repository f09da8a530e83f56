import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { errorOf } from '../support/outcome.ts'
import { SteppedWorld } from '../support/stepped-world.ts'
import {
  dtypes,
  expectBits,
  fill,
  newArray,
  placed,
  placements,
  reduced,
  reductionsOf,
} from '../support/values.ts'

/** Too large for a slot of the in-process world. */
const LENGTH = 30_000
/** Several blocks, the last one with an empty chunk. */
const SEVERAL = 5 * 2 * 32 * 1024 + 16

function together(size: number): number[] {
  return Array.from({ length: size }, () => 0)
}

describe('large collectives over shared memory', () => {
  it.each([2, 3, 5])('on %i ranks equal the reference', async (size) => {
    await runWorld({ size, hosts: together(size), seed: size }, async (group) => {
      // all of them with one size: what differs by size is the cutting into chunks
      const some = dtypes.filter((_, i) => size === 3 || i % 4 === 0)
      for (const [i, dtype] of some.entries()) {
        for (const [k, op] of reductionsOf(dtype).entries()) {
          const placement = placements[(i + k) % 4]!
          const isLarge = i === 0 && k < 2
          const sum = isLarge ? SEVERAL : 4101
          const whole = placed(group, placement, dtype, sum)
          fill(whole.buffer, dtype, group.rank)
          await group.allReduce(whole.buffer, { op, dtype })
          expectBits(whole.buffer, reduced(dtype, op, size, sum))
          whole.release()
          // more than one segment of a slice
          const count = isLarge ? 33_000 : 2051

          const input = placed(group, placement, dtype, count * size)
          const slice = placed(group, placement, dtype, count)
          fill(input.buffer, dtype, group.rank)
          await group.reduceScatter(slice.buffer, input.buffer, { op, dtype })
          const all = reduced(dtype, op, size, count * size)
          expectBits(slice.buffer, all.subarray(group.rank * count, (group.rank + 1) * count))
          expectBits(input.buffer, fill(newArray(dtype, count * size), dtype, group.rank))
          await group.allGather(input.buffer, slice.buffer, { dtype })
          expectBits(input.buffer, all)
          input.release()
          slice.release()
        }
      }
    })
  })

  it('sum in rank order', async () => {
    const hosts = together(4)
    await runWorld({ size: 4, hosts, seed: 2 }, async (group) => {
      const input = Float32Array.from({ length: LENGTH }, (_, i) => {
        return Math.sin((i + 1) * (group.rank + 1)) * 10 ** (i % 5)
      })
      const results = []
      for (const options of [{}, { deterministic: true }, { algorithm: 'direct' }] as const) {
        const buffer = input.slice()
        await group.allReduce(buffer, options)
        results.push(buffer)
      }
      expectBits(results[1]!, results[0]!)
      expectBits(results[2]!, results[0]!)
    })
  })

  it('keep their order among small collectives and on overlapping groups', async () => {
    await runWorld({ size: 4, hosts: together(4), seed: 3 }, async (world) => {
      const pair = await world.newGroup(world.rank < 2 ? [0, 1] : [2, 3])
      const buffers = Array.from({ length: 24 }, (_, i) =>
        new Float64Array(i % 3 === 0 ? 5 : LENGTH / 10).fill(world.rank + i),
      )
      // half of the ranks begin with the other group
      const groups = world.rank % 2 === 0 ? [world, pair] : [pair, world]
      const works = groups.flatMap((group) =>
        buffers.flatMap((buffer, i) =>
          i % 2 === (group === world ? 0 : 1) ? [group.allReduce(buffer)] : [],
        ),
      )
      await Promise.all(works)
      for (const [i, buffer] of buffers.entries()) {
        const ranks = i % 2 === 0 ? world.ranks : pair.ranks
        const sum = ranks.reduce((total, rank) => total + rank + i, 0)
        expect(buffer.every((value) => value === sum)).toBe(true)
      }
    })
  })

  it('use windows in groups without slots, and messages once windows run out too', async () => {
    await runWorld({ size: 2, hosts: [0, 0] }, async (world) => {
      for (let i = 0; i < 8; i++) {
        const group = await world.newGroup([0, 1])
        const buffer = new Float32Array(LENGTH).fill(group.rank + 1)
        await group.allReduce(buffer)
        expect(buffer.every((value) => value === 3)).toBe(true)
        const isWindow = (await choiceOf(group)) === 'window'
        expect(isWindow).toBe(i < 5)
      }
    })
  })

  it('fail on both ranks if the ranks call different collectives', async () => {
    const errors = await runWorld({ size: 2, hosts: [0, 0] }, (group) =>
      errorOf(() => group.allReduce(new Float32Array(LENGTH + group.rank))),
    )
    expect(errors.map((error) => error?.code)).toEqual(['ERR_TSR_MISMATCH', 'ERR_TSR_MISMATCH'])
  })

  it('report the missing rank at the time-out', async () => {
    const errors = await runWorld({ size: 3, hosts: together(3) }, async (group) =>
      group.rank === 1
        ? undefined
        : await errorOf(() => {
            const options = group.rank === 0 ? { timeout: 50 } : {}
            return group.allReduce(new Float32Array(LENGTH), options)
          }),
    )
    expect(errors[0]).toMatchObject({ code: 'ERR_TSR_OPERATION_TIMEOUT', facts: { peers: '1' } })
  })

  it('never complete with bytes that a rank wrote after its failure', async () => {
    // wherever rank 0 gives up, rank 1 has either all sums or an error
    const outcomes = new Set<string>()
    for (let steps = 0; steps < 20; steps++) {
      const world = new SteppedWorld(2, { hosts: [0, 0] })
      const [a, b] = world.groups
      const controller = new AbortController()
      const lent = a!.alloc('float32', LENGTH).fill(1)
      const mine = b!.alloc('float32', LENGTH).fill(2)
      const first = errorOf(() => a!.allReduce(lent, { signal: controller.signal }))
      const second = errorOf(() => b!.allReduce(mine))
      for (let i = 0; i < steps; i++) world.step([i % 2])
      controller.abort()
      lent.fill(100)
      const [failed, error] = await world.finish([first, second])
      if (error === undefined) expect(mine.every((value) => value === 3)).toBe(true)
      outcomes.add(
        `${failed === undefined ? 'done' : 'aborted'}, ${error === undefined ? 'done' : 'failed'}`,
      )
    }
    expect([...outcomes]).toEqual(expect.arrayContaining(['aborted, failed', 'done, done']))
    expect(outcomes).not.toContain('done, failed')
  })
})

/** The algorithm that the engine chose for a large buffer, from the error of a call that fails. */
async function choiceOf(group: ProcessGroup): Promise<string | undefined> {
  const length = LENGTH + group.rank
  const error = await errorOf(() => group.allReduce(new Float32Array(length)))
  return / by (\S+?)[,;.\s]/.exec(error?.message ?? '')?.[1]
}
