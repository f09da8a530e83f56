import type { ProcessGroup } from '@tsrun/distributed'
import { recordChain, type ChainHooks } from '../../autograd/chain.ts'
import { storageOf } from '../../backend/host-memory.ts'
import type { Module } from '../../model/module.ts'
import type { Replicated } from '../gradients/averaging.ts'
import { recomputedLayers } from '../recompute.ts'
import type { MemoryAccounting } from './memory-accounting.ts'
import type { ShardingOptions } from './options.ts'
import type { ShardParameter } from './shard-parameter.ts'
import { createUnit, type Unit, type UnitPlan } from './unit.ts'
import { asModule, type GradientSink, type Values } from './values.ts'

/** A part of the model in a chain of parts: its input is the output of the previous part. */
interface Link {
  readonly module: Module
  readonly unit: Unit
  /** The number of gradient buckets that are complete after this part's backward pass. */
  readonly bucketEnd: number
}

/** ZeRO stage 3: every rank has only its shards of the parameters. Units are unsharded one at a time. */
export async function shardedValues(
  model: Replicated,
  plans: readonly UnitPlan[],
  group: ProcessGroup,
  accounting: MemoryAccounting,
  { reshardAfterForward, recompute }: ShardingOptions,
): Promise<Values> {
  const canFree = model.parameters.every(({ value }) => storageOf(value) !== undefined)
  const recomputes = recompute ?? (reshardAfterForward && !canFree)
  const modules = plans.flatMap(({ module }) => module ?? [])
  const chosen = recomputedLayers(recomputes, model.whole ?? model, modules)
  const all: Unit[] = []
  const links: Link[] = []
  /** The parameters that several parts use. They are unsharded from the first of these parts to the last. */
  let root: Unit | undefined
  // Gradients are computed from the last unit to the first.
  let bucketEnd = plans.filter(({ module, trained }) => module && trained).length
  for (const plan of plans) {
    const unit = await createUnit(plan, group, accounting, canFree && recomputes !== true)
    all.push(unit)
    if (plan.module === undefined) {
      root = unit
      continue
    }
    links.push({ module: plan.module, unit, bucketEnd })
    if (plan.trained !== undefined) bucketEnd--
  }
  const shards = all.flatMap((unit) => unit.shards)
  const owned = all.flatMap((unit) => unit.owned)

  /** Ends a step: completes the updates of shards, and then gathers unsharded parameters again. */
  const settle = async (changed: readonly ShardParameter[]) => {
    for (const shard of changed) await shard.settle()
    for (const unit of all) await unit.refresh()
  }
  return {
    shards,
    gathered: all.flatMap((unit) => {
      const times = unit === root || !reshardAfterForward ? 1 : 2
      return unit.buckets.map(({ padded }) => ({ padded, times }))
    }),
    async record(x, recording, sink) {
      asModule(model)
      const hooks = unitHooks(links, root, reshardAfterForward, sink)
      try {
        const recorded = await recordChain(modules, x, { ...recording, hooks, recompute: chosen })
        return {
          value: recorded.value,
          async backward(dy) {
            const dx = await recorded.backward(dy, sink.onGradient)
            hooks.release()
            sink.close()
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
 * Unshards the parameters of each part of the model while it computes, and prefetches the
 * parameters of the next part. Sends the gradients of a part after its backward pass.
 */
function unitHooks(
  links: readonly Link[],
  root: Unit | undefined,
  reshardAfterForward: boolean,
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
      const own = hold(links[index]!.unit)
      await shared
      await own
      if (index + 1 < links.length) void hold(links[index + 1]!.unit)
    },
    afterForward(index) {
      if (reshardAfterForward) release(links[index]!.unit)
    },
    async beforeBackward(index) {
      await hold(links[index]!.unit)
      if (index > 0) void hold(links[index - 1]!.unit)
      await sink.makeRoom()
    },
    afterBackward(index) {
      const { unit, bucketEnd } = links[index]!
      release(unit)
      sink.close(bucketEnd)
    },
    /** Ends the pass: releases all units that the pass still holds. */
    release() {
      for (const unit of held.keys()) release(unit)
    },
  }
}
