import type { Tensor } from '@tensorflow/tfjs-core'
import type { RecordOptions } from '../../model/recording.ts'
import { storageOf } from '../../backend/storage.ts'
import type { Part, Piece } from '../../checkpoint/piece.ts'
import type { Replicated } from '../data/options.ts'
import { ChainRecording, type Chain, type ChainLink } from './chain-recording.ts'
import type { FullyShardOptions } from './options.ts'
import type { ShardParameter } from './shard-parameter.ts'
import { Unit, type UnitOptions } from './unit.ts'
import type { UnitPlan } from './units.ts'
import {
  asModule,
  type Gathered,
  type GradientSink,
  type ShardedRecording,
  type Values,
} from './values.ts'

/** Stage 3: every rank has its share of the values; units become whole one after the other. */
export class ShardedValues implements Values {
  readonly shards: readonly ShardParameter[]
  readonly gathered: readonly Gathered[]
  readonly #model: Replicated
  readonly #units: readonly Unit[]
  readonly #chain: Chain

  private constructor(model: Replicated, units: readonly Unit[], chain: Chain) {
    this.shards = units.flatMap(({ shards }) => shards)
    this.gathered = units.flatMap((unit) => {
      const times = unit === chain.root || chain.keepsWhole ? 1 : 2
      return unit.buckets.map(({ padded }) => ({ padded, times }))
    })
    this.#model = model
    this.#units = units
    this.#chain = chain
  }

  static async create(
    model: Replicated,
    plans: readonly UnitPlan[],
    options: Omit<UnitOptions, 'keepsTensors'>,
    { reshardAfterForward = true, recompute }: FullyShardOptions,
  ): Promise<ShardedValues> {
    const canFree = model.parameters.every(({ value }) => storageOf(value) !== undefined)
    const recomputes = recompute ?? (reshardAfterForward && !canFree)
    const units: Unit[] = []
    const links: ChainLink[] = []
    let root: Unit | undefined
    // gradients come from the last unit first
    let bucketEnd = plans.filter(({ module, trained }) => module && trained).length
    for (const plan of plans) {
      const unit = await Unit.create(plan, { ...options, keepsTensors: canFree && !recomputes })
      units.push(unit)
      if (plan.module === undefined) {
        root = unit
        continue
      }
      links.push({ module: plan.module, unit, bucketEnd })
      if (plan.trained !== undefined) bucketEnd--
    }
    const keepsWhole = !reshardAfterForward
    return new ShardedValues(model, units, { links, root, keepsWhole, recomputes })
  }

  async record(x: Tensor, options: RecordOptions, sink: GradientSink): Promise<ShardedRecording> {
    asModule(this.#model)
    return await ChainRecording.record(x, options, this.#chain, sink)
  }

  checkPublished(): void {
    // whoever gathers the shares gets the new values
  }

  async publish(): Promise<void> {
    await this.#settle(this.shards)
  }

  async gather(): Promise<void> {
    await Promise.all(this.#units.map((unit) => unit.acquire()))
  }

  release(): void {
    for (const unit of this.#units) unit.release()
  }

  async pieces(): Promise<Piece[]> {
    const pieces: Piece[] = []
    for (const shard of this.#owned) pieces.push(await shard.piece())
    return pieces
  }

  parts(): Part[] {
    return this.#owned.map(({ part }) => part)
  }

  async load(pieces: readonly Piece[]): Promise<void> {
    for (const [i, shard] of this.#owned.entries()) shard.load(pieces[i]!)
    await this.#settle(this.#owned)
  }

  dispose(): void {
    for (const unit of this.#units) unit.dispose()
  }

  /** After shards have got new values: those that are whole get them too. */
  async #settle(shards: readonly ShardParameter[]): Promise<void> {
    for (const shard of shards) await shard.settle()
    for (const unit of this.#units) await unit.refresh()
  }

  get #owned(): ShardParameter[] {
    return this.#units.flatMap(({ owned }) => owned)
  }
}
