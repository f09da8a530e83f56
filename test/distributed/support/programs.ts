import {
  type CallOptions,
  type DType,
  type ProcessGroup,
  type ReduceOp,
  type ReduceOptions,
} from '@tsrun/distributed'
import fc from 'fast-check'
import { exchanges, startExchange, startGathering, type Exchange } from './exchanges.ts'
import {
  arrayOf,
  dtypes,
  fill,
  newArray,
  reduced,
  reductionsOf,
  sameBits,
  valueOf,
} from './values.ts'

/** One line of a program, the same on all ranks: everybody runs the lines that concern it. */
export type Step =
  | {
      readonly kind: 'allReduce' | 'reduce' | 'broadcast' | 'reduceScatter' | 'allGather'
      readonly group: number
      readonly dtype: DType
      readonly length: number
      /** Which of the dtype's reductions. */
      readonly op: number
      readonly algorithm: ReduceOptions['algorithm']
      readonly deterministic: boolean
      readonly root: number
      readonly inArena: boolean
    }
  | { readonly kind: 'barrier'; readonly group: number }
  | {
      readonly kind: 'object'
      readonly group: number
      readonly root: number
      readonly value: unknown
    }
  | { readonly kind: 'gatherObjects'; readonly group: number; readonly value: unknown }
  | {
      readonly kind: 'message'
      readonly group: number
      readonly from: number
      readonly to: number
      readonly tag: number
      readonly dtype: DType
      readonly length: number
      readonly inArena: boolean
    }
  | Exchange
  /** Everybody sends to the root, which receives from any source. */
  | {
      readonly kind: 'fromAny'
      readonly group: number
      readonly root: number
      readonly dtype: DType
      readonly length: number
    }
  /** Waits for some of what is under way, in an order drawn from this number. */
  | { readonly kind: 'wait'; readonly order: number }

export interface Program {
  readonly size: number
  readonly seed: number
  /** Members of each group, as ranks of the world; group 0 is the world. */
  readonly groups: readonly (readonly number[])[]
  readonly steps: readonly Step[]
}

const lengths = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 0, max: 40 }) },
  { weight: 2, arbitrary: fc.integer({ min: 41, max: 6000 }) },
  { weight: 1, arbitrary: fc.integer({ min: 6001, max: 60_000 }) },
)
const indices = fc.nat({ max: 1000 })
const anyDType = fc.constantFrom(...dtypes)

export const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constantFrom('allReduce', 'reduce', 'broadcast', 'reduceScatter', 'allGather'),
      group: indices,
      dtype: anyDType,
      length: lengths,
      op: indices,
      algorithm: fc.constantFrom(
        'ring',
        'recursive-doubling',
        'halving-doubling',
        'hierarchical',
        'direct',
        undefined,
      ),
      deterministic: fc.boolean(),
      root: indices,
      inArena: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('barrier'), group: indices }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('object'),
      group: indices,
      root: indices,
      value: fc.oneof(fc.string(), fc.record({ list: fc.array(fc.double({ noNaN: true })) })),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('gatherObjects'),
      group: indices,
      value: fc.string(),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('message'),
      group: indices,
      from: indices,
      to: indices,
      tag: fc.nat({ max: 2 }),
      dtype: anyDType,
      length: lengths,
      inArena: fc.boolean(),
    }),
  },
  { weight: 6, arbitrary: exchanges },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('wait'), order: indices }) },
)

/** Also those whose receives claim no message before it has come: a step given up breaks them. */
const allSteps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 20, arbitrary: steps },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('fromAny'),
      group: indices,
      root: indices,
      dtype: anyDType,
      length: lengths,
    }),
  },
)

export const programs: fc.Arbitrary<Program> = fc.integer({ min: 1, max: 6 }).chain((size) =>
  fc.record({
    size: fc.constant(size),
    seed: fc.nat(),
    groups: fc
      .array(
        fc.shuffledSubarray(
          Array.from({ length: size }, (_, rank) => rank),
          { minLength: 1 },
        ),
        { maxLength: 3 },
      )
      .map((groups) => [Array.from({ length: size }, (_, rank) => rank), ...groups]),
    steps: fc.array(allSteps, { minLength: 1, maxLength: 40 }),
  }),
)

/** Something under way, and what must hold when it is done. */
interface Pending {
  readonly work: PromiseLike<unknown>
  readonly check: (value: unknown) => boolean
  readonly what: string
}

/** Runs the program as one rank; throws when a result is not that of the sequential reference. */
export async function runProgram(world: ProcessGroup, program: Program): Promise<void> {
  const groups: (ProcessGroup | undefined)[] = [world]
  for (const members of program.groups.slice(1)) {
    const isMember = members.includes(world.rank)
    groups.push(isMember ? await world.newGroup(members) : undefined)
  }
  const pending: Pending[] = []
  const settle = async (count: number, order: number): Promise<void> => {
    for (let i = 0; i < count; i++) {
      const [next] = pending.splice((order * (i + 1)) % pending.length, 1)
      if (!next!.check(await next!.work)) throw new Error(`wrong result of ${next!.what}`)
    }
  }
  for (const [i, step] of program.steps.entries()) {
    if (step.kind === 'wait') {
      await settle(Math.ceil(pending.length / 2), step.order)
      continue
    }
    const group = groups[step.group % groups.length]
    if (group === undefined) continue
    const started = start(group, step, i)
    if (started !== undefined)
      pending.push({ ...started, what: `step ${i} ${JSON.stringify(step)}` })
  }
  await settle(pending.length, program.seed)
}

/** Starts one step on this rank; undefined where it has no part in it. */
export function start(
  group: ProcessGroup,
  step: Exclude<Step, { kind: 'wait' }>,
  salt: number,
  call: CallOptions = {},
): Omit<Pending, 'what'> | undefined {
  const { size, rank } = group
  if (step.kind === 'barrier') return { work: group.barrier(call), check: () => true }
  if (step.kind === 'object') {
    const value = { ...step, salt }
    return {
      work: group.broadcastObject(value, step.root % size, call),
      check: (received) => JSON.stringify(received) === JSON.stringify(value),
    }
  }
  if (step.kind === 'gatherObjects') {
    const expected = Array.from({ length: size }, (_, peer) => [peer, step.value])
    return {
      work: group.allGatherObject([rank, step.value], call),
      check: (received) => JSON.stringify(received) === JSON.stringify(expected),
    }
  }
  if (step.kind === 'exchange') return startExchange(group, step, salt, call)
  if (step.kind === 'fromAny') return startGathering(group, step, salt)
  const { dtype, length, inArena } = step
  const make = (count: number) => (inArena ? group.alloc(dtype, count) : newArray(dtype, count))
  if (step.kind === 'message') {
    const from = step.from % size
    const to = step.to % size
    if (rank !== from && rank !== to) return undefined
    const expected = fill(newArray(dtype, length), dtype, salt)
    const buffer = make(length)
    const options = { ...call, tag: step.tag, dtype }
    if (from === to) {
      const sent = group.send(expected, to, options)
      const received = group.recv(buffer, from, options)
      return { work: Promise.all([sent, received]), check: () => sameBits(buffer, expected) }
    }
    if (rank === from) {
      fill(buffer, dtype, salt)
      return { work: group.send(buffer, to, options), check: () => true }
    }
    return { work: group.recv(buffer, from, options), check: () => sameBits(buffer, expected) }
  }
  const known = reductionsOf(dtype)
  const op: ReduceOp = known[step.op % known.length]!
  const plain = { ...call, dtype }
  const reducing = { ...plain, op, deterministic: step.deterministic }
  const options = {
    ...reducing,
    ...(step.algorithm === undefined ? {} : { algorithm: step.algorithm }),
  }
  const root = step.root % size
  switch (step.kind) {
    case 'allReduce': {
      const buffer = fill(make(length), dtype, rank)
      const check = () => sameBits(buffer, reduced(dtype, op, size, length))
      return { work: group.allReduce(buffer, options), check }
    }
    case 'reduce': {
      const buffer = fill(make(length), dtype, rank)
      const check = () => rank !== root || sameBits(buffer, reduced(dtype, op, size, length))
      return { work: group.reduce(buffer, root, reducing), check }
    }
    case 'broadcast': {
      const buffer = fill(make(length), dtype, rank)
      const check = () => sameBits(buffer, fill(newArray(dtype, length), dtype, root))
      return { work: group.broadcast(buffer, root, plain), check }
    }
    case 'reduceScatter': {
      const slice = Math.ceil(length / size)
      const input = fill(make(slice * size), dtype, rank)
      const output = make(slice)
      const check = () => {
        const all = reduced(dtype, op, size, slice * size)
        return sameBits(output, all.subarray(rank * slice, (rank + 1) * slice))
      }
      return { work: group.reduceScatter(output, input, reducing), check }
    }
    case 'allGather': {
      const slice = Math.ceil(length / size)
      const input = fill(make(slice), dtype, rank)
      const output = make(slice * size)
      const check = () =>
        sameBits(
          output,
          arrayOf(dtype, slice * size, (i) => valueOf(dtype, Math.floor(i / slice), i % slice)),
        )
      return { work: group.allGather(output, input, plain), check }
    }
  }
}
