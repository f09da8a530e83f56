import type { Tensor } from '@tensorflow/tfjs-core'
import { recordChain, type ChainHooks } from '../../autograd/chain.ts'
import { storageOf } from '../../backend/host-memory.ts'
import type { HeldPiece, Part, Piece } from '../../checkpoint/piece.ts'
import type { Module } from '../../model/module.ts'
import type { RecordOptions } from '../../model/recording.ts'
import type { Replicated } from '../gradients/averaging.ts'
import { recomputedLayers } from '../recompute.ts'
import type { ShardingOptions } from './options.ts'
import type { ShardParameter } from './shard-parameter.ts'
import { Unit, type UnitOptions, type UnitPlan } from './unit.ts'
import {
  asModule,
  type GatheredBucket,
  type GradientSink,
  type ShardedRecording,
  type Values,
} from './values.ts'

/** A part of the model in a chain of parts: its input is the output of the previous part. */
interface Link {
  readonly module: Module
  readonly unit: Unit
  /** The number of gradient buckets that are complete after this part's backward pass. */
  readonly bucketEnd: number
}

interface Units {
  readonly all: readonly Unit[]
  readonly links: readonly Link[]
  /**
   * The parameters that several parts use. They are unsharded from the first of these parts to the last.
   */
  readonly root: Unit | undefined
}

type PassOptions = Required<Pick<ShardingOptions, 'reshardAfterForward'>> & {
  readonly recompute: readonly boolean[]
}

/** ZeRO stage 3: every rank has only its shards of the parameters. Units are unsharded one at a time. */
export class ShardedValues implements Values {
  readonly shards: readonly ShardParameter[]
  readonly gathered: readonly GatheredBucket[]
  readonly #model: Replicated
  readonly #units: Units
  readonly #options: PassOptions

  private constructor(model: Replicated, units: Units, options: PassOptions) {
    this.shards = units.all.flatMap(({ shards }) => shards)
    this.gathered = units.all.flatMap((unit) => {
      const times = unit === units.root || !options.reshardAfterForward ? 1 : 2
      return unit.buckets.map(({ padded }) => ({ padded, times }))
    })
    this.#model = model
    this.#units = units
    this.#options = options
  }

  static async create(
    model: Replicated,
    plans: readonly UnitPlan[],
    options: Omit<UnitOptions, 'keepsTensors'>,
    { reshardAfterForward, recompute }: ShardingOptions,
  ): Promise<ShardedValues> {
    const canFree = model.parameters.every(({ value }) => storageOf(value) !== undefined)
    const recomputes = recompute ?? (reshardAfterForward && !canFree)
    const modules = plans.flatMap(({ module }) => module ?? [])
    const chosen = recomputedLayers(recomputes, model.whole ?? model, modules)
    const all: Unit[] = []
    const links: Link[] = []
    let root: Unit | undefined
    // Gradients are computed from the last unit to the first.
    let bucketEnd = plans.filter(({ module, trained }) => module && trained).length
    for (const plan of plans) {
      const unit = await Unit.create(plan, {
        ...options,
        keepsTensors: canFree && recomputes !== true,
      })
      all.push(unit)
      if (plan.module === undefined) {
        root = unit
        continue
      }
      links.push({ module: plan.module, unit, bucketEnd })
      if (plan.trained !== undefined) bucketEnd--
    }
    const passOptions = { reshardAfterForward, recompute: chosen }
    return new ShardedValues(model, { all, links, root }, passOptions)
  }

  async record(x: Tensor, options: RecordOptions, sink: GradientSink): Promise<ShardedRecording> {
    asModule(this.#model)
    const hooks = new UnitHooks(this.#units, this.#options, sink)
    const modules = this.#units.links.map(({ module }) => module)
    try {
      const { recompute } = this.#options
      const recording = await recordChain(modules, x, { ...options, hooks, recompute })
      return {
        value: recording.value,
        async backward(dy) {
          const dx = await recording.backward(dy, sink.onGradient)
          hooks.release()
          sink.close()
          return dx
        },
        dispose() {
          hooks.release()
          recording.dispose()
        },
      }
    } catch (error) {
      hooks.release()
      throw error
    }
  }

  checkPublished(): void {
    // Nothing to check: shards hold the values themselves, and the next gather sends them.
  }

  async publish(): Promise<void> {
    await this.#settle(this.shards)
  }

  async gather(): Promise<void> {
    await Promise.all(this.#units.all.map((unit) => unit.hold()))
  }

  release(): void {
    for (const unit of this.#units.all) unit.release()
  }

  pieces(): HeldPiece[] {
    return this.#owned.map((shard) => shard.piece())
  }

  parts(): Part[] {
    return this.#owned.map(({ part }) => part)
  }

  async load(pieces: readonly Piece[]): Promise<void> {
    for (const [i, shard] of this.#owned.entries()) shard.load(pieces[i]!)
    await this.#settle(this.#owned)
  }

  dispose(): void {
    for (const unit of this.#units.all) unit.dispose()
  }

  /** Ends a step: completes the updates of shards, and then gathers unsharded parameters again. */
  async #settle(shards: readonly ShardParameter[]): Promise<void> {
    for (const shard of shards) await shard.settle()
    for (const unit of this.#units.all) await unit.refresh()
  }

  get #owned(): ShardParameter[] {
    return this.#units.all.flatMap(({ owned }) => owned)
  }
}

/**
 * Unshards the parameters of each part of the model while it computes, and prefetches the
 * parameters of the next part. Sends the gradients of a part after its backward pass.
 */
class UnitHooks implements ChainHooks {
  readonly #units: Units
  readonly #reshardAfterForward: boolean
  readonly #sink: GradientSink
  readonly #held = new Set<Unit>()

  constructor(units: Units, { reshardAfterForward }: PassOptions, sink: GradientSink) {
    this.#units = units
    this.#reshardAfterForward = reshardAfterForward
    this.#sink = sink
  }

  async beforeForward(index: number): Promise<void> {
    const { links, root } = this.#units
    const held = root === undefined ? undefined : this.#hold(root)
    const own = this.#hold(links[index]!.unit)
    await held
    await own
    if (index + 1 < links.length) void this.#hold(links[index + 1]!.unit)
  }

  afterForward(index: number): void {
    if (this.#reshardAfterForward) this.#release(this.#units.links[index]!.unit)
  }

  async beforeBackward(index: number): Promise<void> {
    const { links } = this.#units
    await this.#hold(links[index]!.unit)
    if (index > 0) void this.#hold(links[index - 1]!.unit)
    await this.#sink.makeRoom()
  }

  afterBackward(index: number): void {
    const { unit, bucketEnd } = this.#units.links[index]!
    this.#release(unit)
    this.#sink.close(bucketEnd)
  }

  /** Ends the pass: releases all units that the pass still holds. */
  release(): void {
    for (const unit of this.#held) this.#release(unit)
  }

  /** Starts to gather the unit at once. The caller may ignore the promise. */
  #hold(unit: Unit): Promise<void> {
    if (this.#held.has(unit)) return unit.unsharded ?? Promise.resolve()
    this.#held.add(unit)
    return unit.hold()
  }

  #release(unit: Unit): void {
    if (this.#held.delete(unit)) unit.release()
  }
}
