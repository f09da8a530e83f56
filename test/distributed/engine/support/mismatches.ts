import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { failureOf, type Call } from '../../support/failing-call.ts'
import { errorOf } from '../../support/outcome.ts'
import { newArray } from '../../support/values.ts'

interface Mismatch {
  readonly name: string
  readonly odd: Call
  readonly others: Call
  /** What the message says of either side. */
  readonly words: readonly [string, string]
}

const allReduce =
  (length: number, options = {}): Call =>
  (group) =>
    group.allReduce(newArray('float32', length), options)

/** A whole buffer on the root, null elsewhere. */
const ofRoot = (group: ProcessGroup, root: number, slice = 4) =>
  group.rank === root ? newArray('int32', slice * group.size) : null

const allToAll = (group: ProcessGroup, slice: number) =>
  group.allToAll(newArray('int32', slice * group.size), newArray('int32', slice * group.size))

const allGather = (group: ProcessGroup, algorithm: 'bruck' | 'ring') =>
  group.allGather(newArray('int32', 6 * group.size), newArray('int32', 6), { algorithm })

const mismatches: Mismatch[] = [
  {
    name: 'operations',
    odd: allReduce(10),
    others: (group) => group.barrier(),
    words: ['allReduce(sum) float32[10]', 'barrier'],
  },
  {
    name: 'operations with the same buffers',
    odd: (group) => group.allGather(newArray('float32', 10 * group.size), newArray('float32', 10)),
    others: (group) =>
      group.reduceScatter(newArray('float32', 10), newArray('float32', 10 * group.size)),
    words: ['allGather float32[10]', 'reduceScatter(sum) float32[10]'],
  },
  {
    name: 'dtypes of the same size',
    odd: (group) => group.allReduce(newArray('int32', 10)),
    others: allReduce(10),
    words: ['int32[10]', 'float32[10]'],
  },
  {
    name: 'dtypes of different size',
    odd: (group) => group.broadcast(newArray('float64', 10), 0),
    others: (group) => group.broadcast(newArray('float32', 10), 0),
    words: ['float64[10]', 'float32[10]'],
  },
  {
    name: 'lengths',
    odd: allReduce(10),
    others: allReduce(11),
    words: ['float32[10]', 'float32[11]'],
  },
  {
    name: 'lengths, both large',
    odd: allReduce(50_000),
    others: allReduce(50_001),
    words: ['float32[50000]', 'float32[50001]'],
  },
  {
    name: 'lengths, the odd one small',
    odd: allReduce(10),
    others: allReduce(100_000),
    words: ['float32[10]', 'float32[100000]'],
  },
  {
    name: 'lengths, the odd one large',
    odd: allReduce(100_000),
    others: allReduce(10),
    words: ['float32[100000]', 'float32[10]'],
  },
  {
    name: 'lengths, the odd one empty',
    odd: allReduce(0),
    others: allReduce(5000),
    words: ['float32[0]', 'float32[5000]'],
  },
  {
    name: 'reductions',
    odd: allReduce(10, { op: 'max' }),
    others: allReduce(10),
    words: ['allReduce(max)', 'allReduce(sum)'],
  },
  {
    name: 'dtypes of one array type',
    odd: (group) => group.allReduce(newArray('float16', 10), { dtype: 'float16' }),
    others: (group) => group.allReduce(newArray('float16', 10), { dtype: 'bfloat16' }),
    words: [' float16[10]', ' bfloat16[10]'],
  },
  {
    name: 'reductions of bits',
    odd: (group) => group.allReduce(newArray('uint8', 10), { op: 'bxor' }),
    others: (group) => group.allReduce(newArray('uint8', 10), { op: 'bor' }),
    words: ['allReduce(bxor) uint8', 'allReduce(bor) uint8'],
  },
  {
    name: 'the order of combining',
    odd: allReduce(10, { deterministic: true }),
    others: allReduce(10),
    words: ['by direct', 'by recursive-doubling'],
  },
  {
    name: 'algorithms',
    odd: allReduce(5000, { algorithm: 'ring' }),
    others: allReduce(5000, { algorithm: 'recursive-doubling' }),
    words: ['by ring', 'by recursive-doubling'],
  },
  {
    name: 'roots',
    odd: (group) => group.broadcast(newArray('float32', 10), 0),
    others: (group) => group.broadcast(newArray('float32', 10), 1),
    words: ['broadcast(root 0)', 'broadcast(root 1)'],
  },
  {
    name: 'roots of a large reduction',
    odd: (group) => group.reduce(newArray('float32', 50_000), 0),
    others: (group) => group.reduce(newArray('float32', 50_000), 1),
    words: ['reduce(sum, root 0)', 'reduce(sum, root 1)'],
  },
  {
    name: 'the lengths of coalesced buffers of the same sum',
    odd: (group) => group.allReduceCoalesced([newArray('int32', 3), newArray('int32', 7)]),
    others: (group) => group.allReduceCoalesced([newArray('int32', 5), newArray('int32', 5)]),
    words: ['allReduceCoalesced(sum) int32[10] in 2 buffers', 'int32[10] in 2 buffers'],
  },
  {
    name: 'the root of a gather',
    odd: (group) => group.gather(ofRoot(group, 1), newArray('int32', 4), 1),
    others: (group) => group.gather(ofRoot(group, 0), newArray('int32', 4), 0),
    words: ['gather(root 1) int32[4]', 'gather(root 0) int32[4]'],
  },
  {
    name: 'the slices of a scatter',
    odd: (group) => group.scatter(newArray('int32', 5), ofRoot(group, 0, 5), 0),
    others: (group) => group.scatter(newArray('int32', 4), ofRoot(group, 0), 0),
    words: ['scatter(root 0) int32[5]', 'scatter(root 0) int32[4]'],
  },
  {
    name: 'the slices of an all-to-all',
    odd: (group) => allToAll(group, 6),
    others: (group) => allToAll(group, 7),
    words: ['allToAll int32[6]', 'allToAll int32[7]'],
  },
  {
    name: 'the algorithm',
    odd: (group) => allGather(group, 'bruck'),
    others: (group) => allGather(group, 'ring'),
    words: ['by bruck', 'by ring'],
  },
  {
    name: 'whether the barrier is monitored',
    odd: (group) => group.monitoredBarrier(),
    others: (group) => group.barrier(),
    words: ['monitoredBarrier', 'barrier'],
  },
]

/** By messages, or by what ranks of one host lay out for each other. */
const placesOf = (sizes: readonly number[]) =>
  sizes.flatMap((size) => [
    { size, place: 'apart', hosts: Array.from({ length: size }, (_, rank) => rank) },
    { size, place: 'on one host', hosts: Array.from({ length: size }, () => 0) },
  ])
/** What ranks lay out for each other is always combined in their order. */
const onlyApart = ['the order of combining']

/** Ranks of worlds of these sizes that disagree, in as many interleavings. */
export function describeMismatches(sizes: readonly number[], seeds: number): void {
  describe.each(placesOf(sizes))('$size ranks $place', ({ size, place, hosts }) => {
    const possible = mismatches.filter(({ name }) => place === 'apart' || !onlyApart.includes(name))

    it.each(possible)(
      'report the calls of both sides if they disagree on $name',
      async ({ odd, others, words }) => {
        const disagree = async (seed: number): Promise<void> => {
          const oddRank = seed % size
          const errors = await runWorld({ size, seed, hosts }, async (group) => {
            const apart = await group.newGroup([...group.ranks], { name: 'apart' })
            const call = group.rank === oddRank ? odd : others
            const error = await failureOf(group, call)
            const later = await errorOf(() => group.barrier())
            expect(['ERR_TSR_GROUP_FAILED', 'ERR_TSR_MISMATCH']).toContain(later?.code)
            // Another group of the same ranks still works.
            const buffer = Float32Array.of(1)
            await apart.allReduce(buffer)
            expect(buffer[0]).toBe(size)
            return error
          })
          const mismatch = errors.filter((error) => {
            const [mine, theirs] = words
            return (
              (error as { code?: string } | undefined)?.code === 'ERR_TSR_MISMATCH' &&
              error?.message.includes(mine) &&
              error.message.includes(theirs)
            )
          })
          expect(mismatch).toContain(errors[oddRank])
          expect(mismatch.length).toBeGreaterThanOrEqual(2)
          for (const error of errors) {
            expect(error).toMatchObject({
              code: expect.stringMatching(
                /^ERR_TSR_(MISMATCH|PEER_FAILED|GROUP_FAILED)$/,
              ) as string,
            })
          }
        }
        // at once: some are noticed only when nothing comes for a while
        await Promise.all(Array.from({ length: seeds }, (_, seed) => disagree(seed)))
      },
    )
  })
}
