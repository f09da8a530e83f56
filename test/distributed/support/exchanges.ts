import type { CallOptions, DType, ProcessGroup } from '@tsrun/distributed'
import fc from 'fast-check'
import { dtypes, fill, newArray, reduced, sameBits, slicesOf } from './values.ts'

/** A step of a program in which every rank has a part of its own. */
export interface Exchange {
  readonly kind: 'exchange'
  readonly operation: (typeof operations)[number]
  readonly group: number
  readonly dtype: DType
  readonly length: number
  readonly root: number
  readonly choice: number
  readonly inArena: boolean
}

/** What is under way, and what must hold when it is done. */
interface Started {
  readonly work: PromiseLike<unknown>
  readonly check: (value: unknown) => boolean
}

const operations = [
  'gather',
  'scatter',
  'allToAll',
  'allGatherV',
  'allToAllV',
  'allReduceCoalesced',
  'monitoredBarrier',
  'objects',
] as const

const lengths = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 0, max: 40 }) },
  { weight: 2, arbitrary: fc.integer({ min: 41, max: 6000 }) },
  { weight: 1, arbitrary: fc.integer({ min: 6001, max: 40_000 }) },
)

export const exchanges: fc.Arbitrary<Exchange> = fc.record({
  kind: fc.constant('exchange'),
  operation: fc.constantFrom(...operations),
  group: fc.nat({ max: 1000 }),
  dtype: fc.constantFrom(...dtypes),
  length: lengths,
  root: fc.nat({ max: 1000 }),
  choice: fc.nat({ max: 2 }),
  inArena: fc.boolean(),
})

const total = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0)

/** Starts the step on this rank. */
export function startExchange(
  group: ProcessGroup,
  step: Exchange,
  salt: number,
  call: CallOptions,
): Started {
  const { rank, size } = group
  const { dtype, choice } = step
  const named = { ...call, dtype }
  const root = step.root % size
  const isRoot = rank === root
  const slice = Math.ceil(step.length / size)
  const make = (count: number) =>
    step.inArena ? group.alloc(dtype, count) : newArray(dtype, count)
  const mine = (count: number) => fill(make(count), dtype, rank)
  const ranks = Array.from({ length: size }, (_, i) => i)
  const even = ranks.map(() => slice)
  const unevenOf = (first: number): number[] => ranks.map((i) => ((first + i) % 3) * slice)
  const uneven = unevenOf(salt)
  const tree = { ...named, algorithm: (['auto', 'binomial-tree', 'linear'] as const)[choice]! }
  const exchange = { ...named, algorithm: choice === 0 ? 'auto' : 'pairwise' } as const
  const startOf = (rank: number) => ({ rank, at: 0 })
  switch (step.operation) {
    case 'gather': {
      const output = isRoot ? make(slice * size) : null
      const work = group.gather(output, mine(slice), root, tree)
      return { work, check: () => !output || sameBits(output, slicesOf(dtype, even, startOf)) }
    }
    case 'scatter': {
      const output = make(slice)
      const work = group.scatter(output, isRoot ? mine(slice * size) : null, root, tree)
      const expected = slicesOf(dtype, [slice], () => ({ rank: root, at: rank * slice }))
      return { work, check: () => sameBits(output, expected) }
    }
    case 'allToAll': {
      const output = make(slice * size)
      const expected = slicesOf(dtype, even, (from) => ({ rank: from, at: rank * slice }))
      const work = group.allToAll(output, mine(slice * size), exchange)
      return { work, check: () => sameBits(output, expected) }
    }
    case 'allGatherV': {
      const output = make(total(uneven))
      const work = group.allGatherV(output, mine(uneven[rank]!), uneven, named)
      return { work, check: () => sameBits(output, slicesOf(dtype, uneven, startOf)) }
    }
    case 'allToAllV': {
      const sent = ranks.map((from) => unevenOf(salt + from))
      const coming = ranks.map((from) => sent[from]![rank]!)
      const output = make(total(coming))
      const input = mine(total(sent[rank]!))
      const work = group.allToAllV(output, input, coming, sent[rank]!, named)
      const expected = slicesOf(dtype, coming, (from) => ({
        rank: from,
        at: total(sent[from]!.slice(0, rank)),
      }))
      return { work, check: () => sameBits(output, expected) }
    }
    case 'allReduceCoalesced': {
      const buffers = uneven.map(mine)
      const work = group.allReduceCoalesced(buffers, named)
      const check = () =>
        buffers.every((buffer) => sameBits(buffer, reduced(dtype, 'sum', size, buffer.length)))
      return { work, check }
    }
    case 'monitoredBarrier':
      return { work: group.monitoredBarrier(call), check: () => true }
    case 'objects': {
      const values = isRoot ? ranks.map((to) => `${root} to ${to}: ${salt}`) : null
      const work = group.scatterObject(values, root, call)
      return { work, check: (value) => value === `${root} to ${rank}: ${salt}` }
    }
  }
}

/** Every rank sends the root a message, which takes them as they come. */
export function startGathering(
  group: ProcessGroup,
  step: { readonly root: number; readonly dtype: DType; readonly length: number },
  salt: number,
): Started {
  const { rank, size } = group
  const { dtype, length } = step
  const root = step.root % size
  const tag = 1000 + salt
  if (rank !== root) {
    const buffer = fill(newArray(dtype, length), dtype, rank)
    return { work: group.send(buffer, root, { tag, dtype }), check: () => true }
  }
  const buffers = Array.from({ length: size - 1 }, () => newArray(dtype, length))
  const works = buffers.map((buffer) => group.recv(buffer, 'any', { tag, dtype }))
  const check = (sources: unknown): boolean => {
    const list = sources as number[]
    const areRight = buffers.every((buffer, i) =>
      sameBits(buffer, fill(newArray(dtype, length), dtype, list[i]!)),
    )
    return areRight && new Set(list).size === size - 1
  }
  return { work: Promise.all(works), check }
}
