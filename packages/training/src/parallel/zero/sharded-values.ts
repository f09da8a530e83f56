import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { recordChain, type ChainHooks } from '../../autograd/chain.ts'
import { storageOf } from '../../backend/host-memory.ts'
import { chainOf, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Replicated } from '../gradients/averaging.ts'
import { bucketOf, ownedRanges, padBucket, type SharedBucket } from '../gradients/exchange.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { recomputedLayers } from '../recipe.ts'
import type { MemoryAccounting } from './memory-accounting.ts'
import type { ShardingOptions } from './options.ts'
import type { ReduceScatterExchange } from './reduce-scatter.ts'
import { shardsOf, type ShardParameter } from './shard-parameter.ts'
import {
  asModule,
  gatherShares,
  type GradientSink,
  type SharedValues,
  type Values,
} from './values.ts'

/** ZeRO stage 3: every rank has only its shards of the parameters. Units are unsharded one at a time. */
export async function shardedValues(
  model: Replicated,
  plans: readonly UnitPlan[],
  group: ProcessGroup,
  exchange: ReduceScatterExchange,
  accounting: MemoryAccounting,
  { recompute }: ShardingOptions,
): Promise<Values> {
  const modules = plans.flatMap(({ module }) => module ?? [])
  const chosen = recomputedLayers(recompute, model.whole ?? model, modules)
  const all: Unit[] = []
  for (const plan of plans) all.push(await createUnit(plan, group, accounting))
  /** The parameters that several units use. They are unsharded during the whole pass. */
  const root = all.find(({ isRoot }) => isRoot)
  const chain = all.filter(({ isRoot }) => !isRoot)
  const shards = all.flatMap((unit) => unit.shards)
  const owned = all.flatMap((unit) => unit.owned)

  const settle = async (changed: readonly ShardParameter[]) => {
    for (const shard of changed) shard.settle()
    for (const unit of all) await unit.refresh()
  }
  return {
    shards,
    gathered: all.flatMap((unit) =>
      unit === root ? unit.lengths : [...unit.lengths, ...unit.lengths],
    ),
    async record(x, recording, sink) {
      asModule(model)
      const hooks = unitHooks(chain, root, exchange, sink)
      try {
        const recorded = await recordChain(modules, x, { ...recording, hooks, recompute: chosen })
        return {
          value: recorded.value,
          async backward(dy) {
            const dx = await recorded.backward(dy, sink.onGradient)
            hooks.release()
            if (sink.synchronizes) exchange.startUntil()
            return dx
          },
          dispose() {
            hooks.release()
            recorded.dispose()
          },
        }
      } catch (error) {
        hooks.release()
        throw error
      }
    },
    publish: () => settle(shards),
    async gather() {
      await Promise.all(all.map((unit) => unit.hold()))
    },
    release() {
      for (const unit of all) unit.release()
    },
    pieces: () => owned.map((shard) => shard.piece()),
    parts: () => owned.map(({ part }) => part),
    async load(pieces) {
      for (const [i, shard] of owned.entries()) shard.load(pieces[i]!)
      await settle(owned)
    },
    dispose() {
      for (const unit of all) unit.dispose()
    },
  }
}

/**
 * Unshards each unit while it computes, and prefetches the next one. Sends the gradients of a unit after
 * its backward pass.
 */
function unitHooks(
  chain: readonly Unit[],
  root: Unit | undefined,
  exchange: ReduceScatterExchange,
  sink: GradientSink,
): ChainHooks & { release(): void } {
  const held = new Map<Unit, Promise<void>>()
  /** Starts to gather the unit at once. The caller may ignore the promise. */
  const hold = (unit: Unit) => {
    const gathered = held.get(unit) ?? unit.hold()
    held.set(unit, gathered)
    return gathered
  }
  const release = (unit: Unit) => {
    if (held.delete(unit)) unit.release()
  }
  return {
    async beforeForward(index) {
      const shared = root && hold(root)
      const own = hold(chain[index]!)
      await shared
      await own
      if (index + 1 < chain.length) void hold(chain[index + 1]!)
    },
    afterForward(index) {
      release(chain[index]!)
    },
    async beforeBackward(index) {
      await hold(chain[index]!)
      if (index > 0) void hold(chain[index - 1]!)
      await exchange.makeRoom()
    },
    afterBackward(index) {
      release(chain[index]!)
      const done = chain.slice(index).filter(({ isTrained }) => isTrained)
      if (sink.synchronizes) exchange.startUntil(done.length)
    },
    /** Ends the pass: releases all units that the pass still holds. */
    release() {
      for (const unit of held.keys()) release(unit)
    },
  }
}

/** A part of the model. Its trained parameters are gathered as one bucket, its frozen ones as another. */
export interface UnitPlan {
  /** The module; undefined for the *root* unit, whose parameters belong to several modules or to none. */
  readonly module?: Module
  readonly trained: SharedBucket | undefined
  readonly frozen: SharedBucket | undefined
}

/** Divides a model into units: its layers, or the whole model. The root unit, if any, comes last. */
export function planUnits(
  model: Replicated,
  trained: ReadonlySet<Parameter>,
  ranks: number,
): UnitPlan[] {
  const all = new Set(model.parameters)
  const modules = chainOf(model)
  const sets = modules.map(({ parameters }) => new Set(parameters))
  /** Whether a parameter belongs to exactly one module. */
  const isOfOne = (parameter: Parameter) => sets.filter((set) => set.has(parameter)).length === 1
  const plan = (parameters: readonly Parameter[]) => {
    const bucket = (isTrained: boolean) => {
      const own = parameters.filter((parameter) => trained.has(parameter) === isTrained)
      // Put the last parameters first, because their gradients are computed first.
      return own.length === 0 ? undefined : padBucket(bucketOf(own.reverse()), ranks)
    }
    return { trained: bucket(true), frozen: bucket(false) }
  }
  const plans = modules.map((module, i) => ({ module, ...plan([...sets[i]!].filter(isOfOne)) }))
  const rest = [...all].filter((parameter) => !isOfOne(parameter))
  return rest.length === 0 ? plans : [...plans, plan(rest)]
}

type Unit = Awaited<ReturnType<typeof createUnit>>

/** Copies this rank's shares of a unit, and frees the parameters until `hold` gathers them. */
async function createUnit(
  { module, trained, frozen }: UnitPlan,
  group: ProcessGroup,
  accounting: MemoryAccounting,
) {
  const buckets: SharedValues[] = []
  for (const bucket of [trained, frozen]) {
    if (bucket === undefined) continue
    const share = accounting.alloc('parameters', bucket.share)
    for (const { parameter, from, to, at } of ownedRanges(bucket, group.rank)) {
      const values = await parameter.value.data<'float32'>()
      share.set(values.subarray(from, to), at)
    }
    accounting.count('parameters', 4 * bucket.length)
    buckets.push({ bucket, share, label: `values of ${bucket.slots[0]!.parameter.name}` })
  }
  const slots = buckets.flatMap(({ bucket }) => bucket.slots)
  const parameters = new Map(
    slots.map(({ parameter }) => [parameter.name, reshardable(parameter, accounting)]),
  )
  const owned = buckets.flatMap(({ bucket, share }) => shardsOf(bucket, share, group, true))
  const names = new Set(trained?.slots.map(({ parameter }) => parameter.name))
  let holders = 0
  let unsharded: Promise<void> | undefined
  let isGathering = false

  const reshard = () => {
    for (const parameter of parameters.values()) parameter.reshard()
  }
  const reshardUnheld = () => {
    if (holders > 0) return
    unsharded = undefined
    reshard()
  }
  const gather = () => {
    isGathering = true
    const gathered = gatherShares(buckets, group, accounting, ({ name }, values) => {
      parameters.get(name)!.unshard(values)
    }).finally(() => {
      isGathering = false
      reshardUnheld()
    })
    // Ignore the error here: the caller that awaits `hold` gets it.
    gathered.catch(() => undefined)
    return gathered
  }

  reshard()
  return {
    isRoot: module === undefined,
    isTrained: trained !== undefined,
    /** The number of elements of each bucket, including the padding. */
    lengths: buckets.map(({ bucket }) => bucket.padded),
    owned,
    /** The shards among `owned` that are trained. */
    shards: owned.filter(({ name }) => names.has(name)),

    /**
     * Holds the unit, and gathers its parameters unless another holder has done so. The collectives
     * start at once, so all ranks must call `hold` in the same order.
     */
    hold() {
      holders++
      unsharded ??= gather()
      return unsharded
    },

    release() {
      holders--
      if (!isGathering) reshardUnheld()
    },

    /** Gathers the parameters again after a step, if they are unsharded. */
    async refresh() {
      if (unsharded === undefined) return
      unsharded = gather()
      await unsharded
    },

    dispose() {
      for (const shard of owned) shard.release()
      for (const parameter of parameters.values()) parameter.dispose()
      for (const { share } of buckets) accounting.free('parameters', share)
    },
  }
}

/**
 * Takes a parameter of the model in ZeRO stage 3 with all its values. From now on, the values are in
 * memory only while they are in use. The parameter keeps its tensor, because recordings may have saved it.
 *
 * @throws ERR_TSR_SYNC_READ on webgpu
 */
function reshardable(parameter: Parameter, accounting: MemoryAccounting) {
  const tensor = parameter.value
  const bytes = 4 * tensor.size
  let isUnsharded = true
  const storage = storageOf(tensor)
  if (storage === undefined) throw tsrError('ERR_TSR_SYNC_READ', { backend: tf.getBackend() })
  return {
    /** Frees the values of the parameter. Reading `parameter.value` then throws. */
    reshard() {
      if (!isUnsharded) return
      accounting.count('parameters', -bytes)
      isUnsharded = false
      storage.free()
      parameter.value = withoutValues(parameter.name, tensor)
    },

    /** Sets all values of the parameter, and frees its previous values. */
    unshard(values: Float32Array) {
      if (isUnsharded) storage.free()
      else accounting.count('parameters', bytes)
      storage.fill(values)
      isUnsharded = true
      parameter.value = tensor
    },

    /** Disposes the tensor if the parameter is sharded. If it is unsharded, the model keeps the tensor. */
    dispose() {
      if (isUnsharded) return
      storage.abandon()
      tensor.dispose()
    },
  }
}

/** Returns a placeholder for a tensor whose memory is freed. The placeholder counts as disposed. */
function withoutValues(parameter: string, tensor: Tensor) {
  const refuse = (): never => {
    throw tsrError('ERR_TSR_SHARDED', { parameter })
  }
  return Object.create(tensor, {
    isDisposedInternal: { value: true },
    throwIfDisposed: { value: refuse },
    dataId: { get: refuse },
  }) as Tensor
}
