import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener, RecordOptions } from '../../model/recording.ts'
import { ownerOfState, type StatefulOptimizer } from '../../checkpoint/owners.ts'
import type { Part, Piece, PieceOwner } from '../../checkpoint/piece.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import { Lifetime } from '../data/lifetime.ts'
import { checkTokens, type GradientOptions, type Replicated } from '../data/options.ts'
import type { Traffic } from '../data/reducer.ts'
import { unmarkReplicated } from '../data/replicated.ts'
import { checkUsed, factorOf, sumStep } from '../data/step-totals.ts'
import type { Stage } from './formulas.ts'
import type { FullyShard } from './fully-shard.ts'
import type { GradientShards } from './gradient-shards.ts'
import { axesOf, type ShardingGroups } from './groups.ts'
import type { FlatBucket } from './layout.ts'
import type { Ledger, StateMemory } from './ledger.ts'
import type { GradientSink, ShardedRecording, Values } from './values.ts'

export interface Parts {
  readonly groups: ShardingGroups
  readonly stage: Stage
  readonly buckets: readonly FlatBucket[]
  readonly options: GradientOptions
  readonly ledger: Ledger
  readonly gradients: GradientShards
  readonly values: Values
}

export class Sharded<M extends Replicated> implements FullyShard<M> {
  readonly module: M
  readonly onGradient: GradientListener
  readonly #parts: Parts
  readonly #lifetime: Lifetime
  readonly #sink: GradientSink
  synchronizes = true

  constructor(module: M, parts: Parts) {
    this.module = module
    this.#parts = parts
    this.#lifetime = new Lifetime(parts.groups.shard)
    const { gradients, buckets } = parts
    const names = new Set(buckets.flatMap(({ slots }) => slots.map((slot) => slot.parameter.name)))
    this.#sink = {
      take: (parameter, gradient, isComplete) => {
        this.#lifetime.take(gradient, () => {
          if (!names.has(parameter.name)) return
          gradients.add(parameter, gradient, isComplete && this.synchronizes)
        })
      },
      close: (end) => {
        if (this.synchronizes) gradients.launch(end)
      },
      makeRoom: () => gradients.makeRoom(),
    }
    this.onGradient = (parameter, gradient) => {
      this.#sink.take(parameter, gradient, true)
    }
  }

  get stage(): Stage {
    return this.#parts.stage
  }

  get shards(): readonly Parameter[] {
    return this.#parts.values.shards
  }

  get traffic(): Traffic {
    const { buckets, groups, options, values } = this.#parts
    const gradientBytes = options.wire === 'float32' ? 4 : 2
    const hasReplicas = groups.replicate !== undefined
    let [collectives, bytes] = [0, 0]
    for (const { padded, share } of buckets) {
      collectives += hasReplicas ? 2 : 1
      bytes += gradientBytes * (padded + (hasReplicas ? share : 0))
    }
    for (const { padded, times } of values.gathered) {
      collectives += times
      bytes += 4 * padded * times
    }
    return { collectives, bytes }
  }

  get memory(): StateMemory {
    return this.#parts.ledger
  }

  async record(
    x: Tensor,
    options: RecordOptions = { needsInputGradient: false },
  ): Promise<ShardedRecording> {
    this.#checkStepped('record()')
    return await this.#parts.values.record(x, options, this.#sink)
  }

  async gradients(tokens?: number): Promise<Map<string, Float32Array>> {
    const { groups, gradients, ledger, options } = this.#parts
    checkTokens(options, tokens)
    this.#checkStepped('gradients()')
    return await this.#lifetime.alone('gradients()', async () => {
      const { used, names } = gradients.arrivals
      checkUsed(options, { used, names }, groups.shard)
      gradients.launch()
      const axes = axesOf(groups)
      const totals = await sumStep(axes, options, { tokens: tokens ?? 0, used, names })
      await gradients.arrived()
      const shares = gradients.take(factorOf(axes, totals.count), totals.unused)
      ledger.trim()
      return shares
    })
  }

  async step(optimizer: Optimizer, gradients: ReadonlyMap<string, Float32Array>): Promise<void> {
    this.#lifetime.checkAwaited('step()')
    optimizer.step(this.shards, gradients)
    await this.#lifetime.alone('step()', () => this.#parts.values.publish())
    this.#parts.ledger.trim()
  }

  async gather(): Promise<void> {
    this.#checkStepped('gather()')
    await this.#parts.values.gather()
  }

  release(): void {
    this.#parts.values.release()
    this.#parts.ledger.trim()
  }

  async pieces(): Promise<readonly Piece[]> {
    return await this.#parts.values.pieces()
  }

  parts(names: ReadonlySet<string>): readonly Part[] {
    return this.#parts.values.parts(names)
  }

  async load(pieces: readonly Piece[]): Promise<void> {
    await this.#parts.values.load(pieces)
  }

  stateOf(optimizer: StatefulOptimizer): PieceOwner {
    const parts = this.#parts.values.shards.map(({ part }) => part)
    return ownerOfState(optimizer, parts)
  }

  dispose(): void {
    if (!this.#lifetime.dispose()) return
    this.module.averageBy?.(undefined)
    this.#parts.values.dispose()
    this.#parts.gradients.dispose()
    this.#parts.ledger.trim()
    unmarkReplicated(this.module.parameters)
  }

  /** Nobody goes on with the values of the step before. */
  #checkStepped(what: string): void {
    this.#lifetime.checkAwaited(what, ['step()'])
    this.#parts.values.checkPublished()
  }
}
