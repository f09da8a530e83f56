import { argumentError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { communicates } from '../../model/module.ts'
import { replaceValue, type Parameter, type Shard } from '../../model/parameter.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import type { OptimizerState, ParameterState } from '../../optim/state.ts'
import type { Replicated } from './averaging.ts'
import type { ModelParameters } from './options.ts'

type Described = Pick<Parameter, 'name' | 'shape'> & { readonly shard?: Shard | undefined }

/**
 * Makes equal replicas of a model on all ranks of the axes: checks that they have the same parameters and
 * options, and copies the parameters of the first rank to the others.
 *
 * @returns copies of the axes for collectives inside passes: ranks interleave these collectives and the
 *   collectives of buckets in different orders, so they must not share groups
 * @throws ERR_TSR_REPLICA naming the first difference, on every rank; ERR_TSR_ARGUMENT
 */
export async function replicate(
  module: Replicated,
  { all, trained, buffers }: ModelParameters,
  options: Readonly<Record<string, unknown>>,
  axes: readonly ProcessGroup[],
): Promise<readonly ProcessGroup[]> {
  await module.prepare?.()
  const own = [
    ...describeParameters(all).map(
      (line, i) => line + (trained.includes(all[i]!) ? '' : ', frozen'),
    ),
    ...describeParameters(buffers).map((line) => `${line}, a buffer`),
  ]
  const given = Object.entries(options).map(([name, value]) => `${name} ${JSON.stringify(value)}`)
  for (const axis of axes) {
    // A difference could make a rank wait forever, or sum unrelated values.
    const ranks = await axis.allGatherObject([own, given] as const)
    compareReplicas(
      ranks.map(([parameters]) => parameters),
      axis,
    )
    compareReplicas(
      ranks.map(([, theirs]) => theirs),
      axis,
      'options',
    )
    // A stage of a pipeline may have no parameters.
    if (trained.length === 0 && !('averageBy' in module)) {
      throw argumentError(
        'module',
        'one without a parameter that is trained',
        'one with at least one',
      )
    }
    await broadcastParameters([...all, ...buffers], axis, 0)
  }
  markReplicated(all, true)
  const copies: ProcessGroup[] = []
  if (!communicates(module.whole ?? module)) return copies
  for (const axis of axes) if (axis.size > 1) copies.push((await axis.split(0))!)
  return copies
}

/**
 * Checks that all ranks have the same parameters as rank 0. Compares names, shapes and shards.
 *
 * @throws ERR_TSR_REPLICA naming the first difference, on every rank
 */
export async function compareParameters(
  parameters: readonly Described[],
  group: ProcessGroup,
): Promise<void> {
  compareReplicas(await group.allGatherObject(describeParameters(parameters)), group)
}

/** A line for each parameter, with its name, shape and shard. */
export function describeParameters(parameters: readonly Described[]): string[] {
  return parameters.map(({ name, shape, shard }) => {
    const own = `${name} [${shape.join(', ')}]`
    if (shard === undefined) return own
    return `${own} of [${shard.shape.join(', ')}], from ${shard.offset} along axis ${shard.axis}`
  })
}

/**
 * Checks that all ranks have the same description as rank 0.
 *
 * @param all - the descriptions of all ranks, in rank order
 * @throws ERR_TSR_REPLICA naming the first difference from rank 0
 */
export function compareReplicas(
  all: readonly (readonly string[])[],
  { ranks }: Pick<ProcessGroup, 'ranks'>,
  what: 'parameters' | 'options' = 'parameters',
): void {
  const [first] = all
  for (const [rank, other] of all.entries()) {
    const length = Math.max(first!.length, other.length)
    for (let i = 0; i < length; i++) {
      if (other[i] === first![i]) continue
      const has = other[i] ?? `no more ${what}`
      throw tsrError('ERR_TSR_REPLICA', {
        rank: ranks[rank]!,
        first: ranks[0]!,
        what,
        has: what === 'parameters' ? `number ${i} is ${has}` : has,
        wanted: first![i] ?? `no more ${what}`,
      })
    }
  }
}

/** Marks parameters as replicated or not. `parallelize` refuses to replace replicated parameters. */
export function markReplicated(parameters: readonly Parameter[], isReplicated: boolean): void {
  for (const parameter of parameters) parameter.isReplicated = isReplicated
}

/** Copies the values of parameters from `root` to all ranks, in one message per parameter. */
export async function broadcastParameters(
  parameters: readonly Parameter[],
  group: ProcessGroup,
  root: number,
): Promise<void> {
  for (const parameter of parameters) {
    await broadcastValues([parameter], group, root, `parameter ${parameter.name}`)
  }
}

/** Copies the values of parameters from `root` to all ranks, in one message. */
async function broadcastValues(
  parameters: readonly Parameter[],
  group: ProcessGroup,
  root: number,
  label: string,
): Promise<void> {
  const size = parameters.reduce((sum, { value }) => sum + value.size, 0)
  const all = group.allocUnsafe('float32', size)
  try {
    let at = 0
    const places = parameters.map((parameter) => {
      const values = all.subarray(at, (at += parameter.value.size))
      return { parameter, values, facts: { name: parameter.name, bytes: values.byteLength } }
    })
    for (const { parameter, values, facts } of group.rank === root ? places : []) {
      await timeSpan(group.spans, 'pack', facts, () => writeTo(parameter.value, values))
    }
    await group.broadcast(all, root, { label })
    for (const { parameter, values, facts } of group.rank === root ? [] : places) {
      timeSpan(group.spans, 'unpack', facts, () => {
        replaceValue(parameter, tensorFrom(values, parameter.shape))
      })
    }
  } finally {
    group.free(all)
  }
}

/** Copies the state and the learning rate of the optimizer from `root` to all ranks. */
export async function broadcastState(
  optimizer: Pick<Optimizer, 'state' | 'loadState' | 'learningRate'>,
  group: ProcessGroup,
  root: number,
): Promise<void> {
  const isRoot = group.rank === root
  const state: OptimizerState = isRoot ? await optimizer.state() : new Map()
  const own = Array.from(state, ([name, { steps, values }]) => ({
    name,
    steps,
    sizes: Object.entries(values).map(([kind, { length }]) => [kind, length] as const),
  }))
  const { learningRate, kept } = await group.broadcastObject(
    { learningRate: optimizer.learningRate, kept: own },
    root,
  )
  const received = new Map<string, ParameterState>()
  for (const { name, steps, sizes } of kept) {
    const values: Record<string, Float32Array> = {}
    for (const [kind, length] of sizes) {
      values[kind] = state.get(name)?.values[kind] ?? new Float32Array(length)
      await group.broadcast(values[kind], root, { label: `optimizer, ${kind} of ${name}` })
    }
    received.set(name, { steps, values })
  }
  if (isRoot) return
  optimizer.loadState(received)
  optimizer.learningRate = learningRate
}

/**
 * Keeps the buffers of a replicated model equal on all ranks; see `Module.buffers`. As in torch's
 * DistributedDataParallel, all ranks get the buffers of the first rank.
 *
 * @returns a function for the end of a step, which sends the buffers that have changed, axis by axis
 */
export function bufferSharing(
  buffers: readonly Parameter[],
  axes: readonly ProcessGroup[],
): () => Promise<void> {
  const values = () => buffers.map(({ value }) => value)
  /** The values of the buffers after the last call, to find changed ones. */
  let known = values()
  return async () => {
    if (buffers.length === 0) return
    const changed = Uint8Array.from(values(), (value, i) => Number(value !== known[i]))
    for (const axis of axes) {
      if (axis.size === 1) continue
      await axis.allReduce(changed, { op: 'max', label: 'changed buffers' })
      const sent = buffers.filter((_, i) => changed[i] !== 0)
      // Buffers are many and small, so send them in one message.
      if (sent.length > 0) await broadcastValues(sent, axis, 0, 'buffers')
    }
    known = values()
  }
}
