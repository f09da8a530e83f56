import { runWorld, type CollectiveOptions, type DType, type ProcessGroup } from '@tsrun/distributed'
import {
  dtypes,
  expectBits,
  fill,
  newArray,
  placed,
  placements,
  reduced,
  slicesOf,
  type Placement,
} from '../../support/values.ts'

const counts = [0, 1, 3, 100, 1000]
/** Slices around the eager limit and the thresholds of the choice, and several segments. */
const large = [4096, 4097, 16_385, 100_000]

interface Case {
  readonly dtype: DType
  readonly count: number
  readonly placement: Placement
}

/** All counts with dtypes and placements in turn; large ones in two sizes of the world. */
function casesOf(size: number): Case[] {
  const all = size === 3 || size === 4 ? [...counts, ...large] : counts
  return all.flatMap((count, k) =>
    dtypes
      .filter((_, i) => (count < 4096 ? (i + k + size) % 4 === 0 : i === k % dtypes.length))
      .map((dtype, i) => ({ dtype, count, placement: placements[(i + k + size) % 4]! })),
  )
}

/** Runs every case on every rank of a world, one after the other; small ones also on one host. */
async function everyCase(
  size: number,
  run: (group: ProcessGroup, each: Case) => Promise<void>,
): Promise<void> {
  const cases = casesOf(size)
  await runWorld({ size, seed: 100 + size }, async (group) => {
    for (const each of cases) await run(group, each)
  })
  const hosts = Array.from({ length: size }, () => 0)
  await runWorld({ size, seed: 100 + size, hosts }, async (group) => {
    for (const each of cases.filter(({ count }) => count <= 1000)) await run(group, each)
  })
}

const choices = (...names: CollectiveOptions['algorithm'][]): CollectiveOptions[] =>
  ['auto' as const, ...names].map((algorithm) => ({ algorithm: algorithm ?? 'auto' }))

/** Lengths of uneven slices that add up to about `count` for each of `size`; some are empty. */
function uneven(size: number, count: number, salt: number): number[] {
  return Array.from({ length: size }, (_, i) => (((i + salt) % 3) * count) >> 1)
}

const total = (lengths: readonly number[]): number => lengths.reduce((a, b) => a + b, 0)

/** What every exchange promises, in worlds of these sizes. */
export function describeExchanges(sizes: readonly number[]): void {
  describe.each(sizes)('with %i ranks', (size) => {
    const ranks = Array.from({ length: size }, (_, rank) => rank)

    it.each(choices('binomial-tree', 'linear'))(
      'gather and scatter equal the reference: %j',
      async (options) => {
        await everyCase(size, async (group, { dtype, count, placement }) => {
          for (const root of ranks) {
            if (count > 4000 && root > 1) continue
            const isRoot = group.rank === root
            const own = placed(group, placement, dtype, count)
            fill(own.buffer, dtype, group.rank)
            const whole = placed(group, placement, dtype, isRoot ? count * size : 0)
            await group.gather(isRoot ? whole.buffer : null, own.buffer, root, {
              dtype,
              ...options,
            })
            const expected = slicesOf(
              dtype,
              ranks.map(() => count),
              (rank) => ({ rank }),
            )
            if (isRoot) expectBits(whole.buffer, expected)
            fill(own.buffer, dtype, size)
            await group.scatter(own.buffer, isRoot ? whole.buffer : null, root, {
              dtype,
              ...options,
            })
            const mine = fill(newArray(dtype, count), dtype, group.rank)
            expectBits(own.buffer, mine)
            if (isRoot) expectBits(whole.buffer, expected)
            own.release()
            whole.release()
          }
        })
      },
    )

    it.each(choices('pairwise'))('allToAll equals the reference: %j', async (options) => {
      await everyCase(size, async (group, { dtype, count, placement }) => {
        const lengths = ranks.map(() => count)
        const input = placed(group, placement, dtype, count * size)
        const output = placed(group, placement, dtype, count * size)
        fill(input.buffer, dtype, group.rank)
        await group.allToAll(output.buffer, input.buffer, { dtype, ...options })
        const expected = slicesOf(dtype, lengths, (rank) => ({ rank, at: group.rank * count }))
        expectBits(output.buffer, expected)
        expectBits(input.buffer, fill(newArray(dtype, count * size), dtype, group.rank))
        input.release()
        output.release()
      })
    })

    it.each(choices('ring', 'bruck', 'direct'))(
      'allGather equals the reference: %j',
      async (options) => {
        await everyCase(size, async (group, { dtype, count, placement }) => {
          const output = placed(group, placement, dtype, count * size)
          const input = placed(group, placement, dtype, count)
          fill(input.buffer, dtype, group.rank)
          await group.allGather(output.buffer, input.buffer, { dtype, ...options })
          const lengths = ranks.map(() => count)
          expectBits(
            output.buffer,
            slicesOf(dtype, lengths, (rank) => ({ rank })),
          )
          output.release()
          input.release()
        })
      },
    )

    it.each(choices('ring', 'recursive-halving', 'direct'))(
      'reduceScatter equals the reference: %j',
      async (options) => {
        await everyCase(size, async (group, { dtype, count, placement }) => {
          for (const op of ['sum', dtype.includes('float') ? 'avg' : 'bxor', 'max'] as const) {
            const input = placed(group, placement, dtype, count * size)
            const output = placed(group, placement, dtype, count)
            fill(input.buffer, dtype, group.rank)
            await group.reduceScatter(output.buffer, input.buffer, { ...options, op, dtype })
            const expected = reduced(dtype, op, size, count * size)
            const mine = expected.subarray(group.rank * count, (group.rank + 1) * count)
            expectBits(output.buffer, mine)
            // in place: the own slice of the input
            fill(input.buffer, dtype, group.rank)
            const slice = input.buffer.subarray(group.rank * count, (group.rank + 1) * count)
            await group.reduceScatter(slice, input.buffer, { ...options, op, dtype })
            expectBits(slice, mine)
            input.release()
            output.release()
          }
        })
      },
    )

    it('allGatherV and allToAllV exchange slices of different lengths', async () => {
      await everyCase(size, async (group, { dtype, count, placement }) => {
        const { rank } = group
        const lengths = uneven(size, count, 1)
        const whole = placed(group, placement, dtype, total(lengths))
        const own = placed(group, placement, dtype, lengths[rank]!)
        fill(own.buffer, dtype, rank)
        const expected = slicesOf(dtype, lengths, (rank) => ({ rank }))
        await group.allGatherV(whole.buffer, own.buffer, lengths, { dtype })
        expectBits(whole.buffer, expected)
        // what rank i sends to rank j
        const sent = ranks.map((from) => uneven(size, count, from))
        const coming = ranks.map((from) => sent[from]![rank]!)
        const input = placed(group, placement, dtype, total(sent[rank]!))
        const output = placed(group, placement, dtype, total(coming))
        fill(input.buffer, dtype, rank)
        await group.allToAllV(output.buffer, input.buffer, coming, sent[rank]!, { dtype })
        const exchanged = slicesOf(dtype, coming, (from) => ({
          rank: from,
          at: total(sent[from]!.slice(0, rank)),
        }))
        expectBits(output.buffer, exchanged)
        for (const { release } of [whole, own, input, output]) release()
      })
    })

    it('allReduceCoalesced equals one all-reduce for each buffer', async () => {
      await everyCase(size, async (group, { dtype, count, placement }) => {
        const lengths = [count, 0, 1, count >> 1]
        const buffers = lengths.map((length) => placed(group, placement, dtype, length))
        for (const { buffer } of buffers) fill(buffer, dtype, group.rank)
        await group.allReduceCoalesced(
          buffers.map(({ buffer }) => buffer),
          { op: 'max', dtype },
        )
        for (const { buffer, release } of buffers) {
          expectBits(buffer, reduced(dtype, 'max', size, buffer.length))
          release()
        }
      })
    })

    it('gather and scatter exchange objects of different lengths', async () => {
      await runWorld({ size, seed: size }, async (group) => {
        for (const root of ranks) {
          const ownOf = (rank: number): string => `${rank}`.repeat(1 + rank * 3000)
          const gathered = await group.gatherObject(ownOf(group.rank), root)
          const expected = group.rank === root ? ranks.map(ownOf) : undefined
          expect(gathered).toEqual(expected)
          const values = group.rank === root ? ranks.map((rank) => 'x'.repeat(rank * 5000)) : null
          expect(await group.scatterObject(values, root)).toBe('x'.repeat(group.rank * 5000))
        }
      })
    })
  })
}
