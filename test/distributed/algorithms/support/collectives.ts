import { runWorld, type AnyTypedArray, type DType, type ProcessGroup } from '@tsrun/distributed'
import {
  dtypes,
  expectBits,
  fill,
  newArray,
  placed,
  placements,
  reduced,
  reductionsOf,
  type Placement,
} from '../../support/values.ts'

const counts = [0, 1, 3, 100, 1000, 5000]
/** Several segments a chunk, and the algorithms for large messages. */
const large = 100_000

/** What a case runs with; the placement of its buffers goes round, so that all come up. */
interface Case {
  readonly dtype: DType
  readonly count: number
  readonly placement: Placement
}

/** Every dtype with counts that differ by size, so that all pairs come up over the sizes. */
function casesOf(size: number): Case[] {
  const all = size === 2 || size === 5 ? [...counts, large] : counts
  return dtypes.flatMap((dtype, i) =>
    all
      .filter((count, k) => dtype === 'float32' || (count < large && (i + k + size) % 3 === 0))
      .map((count, k) => ({ dtype, count, placement: placements[(i + k + size) % 4]! })),
  )
}

/** Runs every case on every rank of a world, one after the other; small ones also on one host. */
async function everyCase(
  size: number,
  run: (group: ProcessGroup, each: Case) => Promise<void>,
): Promise<void> {
  const cases = casesOf(size)
  await runWorld({ size, seed: size }, async (group) => {
    for (const each of cases) await run(group, each)
  })
  const hosts = Array.from({ length: size }, () => 0)
  await runWorld({ size, seed: size, hosts }, async (group) => {
    for (const each of cases.filter(({ count }) => count <= 1000)) await run(group, each)
  })
}

/** What every collective promises, in worlds of these sizes. */
export function describeCollectives(sizes: readonly number[]): void {
  describe.each(sizes)('with %i ranks', (size) => {
    it.each([
      { algorithm: 'ring' },
      { algorithm: 'recursive-doubling' },
      { algorithm: 'halving-doubling' },
      { algorithm: 'direct' },
      {},
    ] as const)('allReduce %j equals the reference on every rank', async (choice) => {
      await everyCase(size, async (group, { dtype, count, placement }) => {
        for (const op of reductionsOf(dtype)) {
          const { buffer, release } = placed(group, placement, dtype, count)
          fill(buffer, dtype, group.rank)
          await group.allReduce(buffer, { op, dtype, ...choice })
          const expected = reduced(dtype, op, size, count)
          expectBits(buffer, expected)
          release()
        }
      })
    })

    it('reduce equals the reference on every root', async () => {
      await everyCase(size, async (group, { dtype, count, placement }) => {
        for (let root = 0; root < size; root++) {
          const ops = reductionsOf(dtype)
          const op = ops[(root + count) % ops.length]!
          const { buffer, release } = placed(group, placement, dtype, count)
          fill(buffer, dtype, group.rank)
          await group.reduce(buffer, root, { op, dtype })
          const expected = reduced(dtype, op, size, count)
          if (group.rank === root) expectBits(buffer, expected)
          release()
        }
      })
    })

    it('broadcast copies the values of every root to every rank', async () => {
      await everyCase(size, async (group, { dtype, count, placement }) => {
        for (let root = 0; root < size; root++) {
          const { buffer, release } = placed(group, placement, dtype, count)
          fill(buffer, dtype, group.rank)
          await group.broadcast(buffer, root, { dtype })
          const expected = fill(newArray(dtype, count), dtype, root)
          expectBits(buffer, expected)
          release()
        }
      })
    })

    it('reduceScatter gives each rank its slice and keeps the input', async () => {
      await everyCase(size, async (group, { dtype, count, placement }) => {
        const ops = reductionsOf(dtype)
        for (const op of count === large ? ops.slice(0, 2) : ops) {
          const input = placed(group, placement, dtype, count * size)
          const output = placed(group, placement, dtype, count)
          fill(input.buffer, dtype, group.rank)
          await group.reduceScatter(output.buffer, input.buffer, { op, dtype })
          const all = reduced(dtype, op, size, count * size)
          const expected = all.subarray(group.rank * count, (group.rank + 1) * count)
          const kept = fill(newArray(dtype, count * size), dtype, group.rank)
          expectBits(output.buffer, expected)
          expectBits(input.buffer, kept)
          output.release()
          input.release()
        }
      })
    })

    it('allGather concatenates the inputs in the order of ranks', async () => {
      await everyCase(size, async (group, { dtype, count, placement }) => {
        const input = placed(group, placement, dtype, count)
        const output = placed(group, placement, dtype, count * size)
        fill(input.buffer, dtype, group.rank)
        await group.allGather(output.buffer, input.buffer, { dtype })
        const expected = newArray(dtype, count * size)
        for (let rank = 0; rank < size; rank++) {
          fill(expected.subarray(rank * count, (rank + 1) * count) as AnyTypedArray, dtype, rank)
        }
        expectBits(output.buffer, expected)
        output.release()
        input.release()
      })
    })

    it('barrier() holds every rank until the last has entered', async () => {
      let entered = 0
      const seen = await runWorld({ size, seed: size }, async (group) => {
        const counts: number[] = []
        for (let round = 1; round <= 20; round++) {
          // the ranks come one after the other, in another order each round
          const place = (group.rank * 5 + round) % size
          for (let i = 0; i < place; i++) await new Promise((resolve) => setImmediate(resolve))
          entered++
          await group.barrier()
          counts.push(entered - round * size)
        }
        return counts
      })
      expect(Math.min(...seen.flat())).toBeGreaterThanOrEqual(0)
    })
  })
}
