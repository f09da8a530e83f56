import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan, type SpanRecorder } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { ownerOfState, withBuffers, type StatefulOptimizer } from '../../checkpoint/owners.ts'
import type { HeldPiece, Part, Piece, PieceOwner } from '../../checkpoint/piece.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { RecordOptions } from '../../model/recording.ts'
import type { ClippedGradients } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import type {
  Averaged,
  Averages,
  Averaging,
  Replicated,
  OwnTotals,
  ShardedRecording,
} from '../gradients/averaging.ts'
import {
  labelOf,
  padBucket,
  planBuckets,
  type SharedBucket,
  type Traffic,
} from '../gradients/exchange.ts'
import { checkedParameters, wireBytes, type ModelParameters } from '../gradients/options.ts'
import { countRanks, Replica } from '../gradients/replica.ts'
import { replicate } from '../gradients/replicas.ts'
import { MemoryAccounting, type StateMemory } from './memory-accounting.ts'
import {
  axesOf,
  readFullyShardOptions,
  readShardingGroups,
  type FullyShardOptions,
  type ShardingGroups,
  type ShardingOptions,
  type ZeroStage,
} from './options.ts'
import { reduceScatterExchange, type ReduceScatterExchange } from './reduce-scatter.ts'
import { planUnits, shardedValues, type UnitPlan } from './sharded-values.ts'
import { unshardedValues, type Values } from './values.ts'

/**
 * Enables ZeRO for a model, like torch's FullyShardedDataParallel (Rajbhandari et al., 2020). The
 * training state is sharded among the ranks of a group, and each rank trains on a part of the batch. The
 * parameters after each step equal those of `dataParallel`. They are bitwise equal with two ranks, or if
 * both use `deterministic`. If `module` is a pipeline, its `step` now averages gradients over the group
 * and updates this rank's shards.
 *
 * @param group - the ranks, or two axes of a mesh: ranks along `shard` share the state, and ranks
 *   along `replicate` are replicas with equal state
 * @example
 * const sharded = await fullyShard(model, group, { stage: 2 })
 * const outputs = await sharded.record(x)
 * const loss = recordLoss(crossEntropy, outputs.value, labels)
 * const dy = loss.backward(one, () => undefined)!
 * await outputs.backward(dy)
 * await sharded.step(optimizer, await sharded.gradients())
 *
 * @throws ERR_TSR_REPLICA when the ranks have different parameters or options, ERR_TSR_ARGUMENT
 */
export async function fullyShard<M extends Replicated>(
  module: M,
  group: ProcessGroup | ShardingGroups,
  options: FullyShardOptions = {},
): Promise<FullyShard<M>> {
  const groups = readShardingGroups(group)
  const checked = readFullyShardOptions(options)
  const { stage } = checked
  const axes = axesOf(groups)
  const parameters = checkedParameters(module, checked, countRanks(axes))
  const { trained } = parameters
  const ranks = groups.shard.size
  const units = stage === 3 ? planUnits(module.whole ?? module, new Set(trained), ranks) : []
  const buckets =
    stage === 3
      ? bucketsOf(units)
      : planBuckets(trained.toReversed(), checked).map((bucket) => padBucket(bucket, ranks))
  const facts = { kind: 'fullyShard', ...checked, buckets: buckets.map(labelOf) }
  const replicas = await replicate(module, parameters, facts, axes)
  const accounting = new MemoryAccounting(groups.shard)
  const exchange = reduceScatterExchange(groups, buckets, accounting, checked)
  const values =
    stage === 3
      ? await shardedValues(module, units, groups.shard, exchange, accounting, checked)
      : unshardedValues(module, groups.shard, buckets, exchange, accounting)
  accounting.resetPeak()
  const sharded = new FullyShard(module, {
    groups,
    buckets,
    options: checked,
    replicas,
    accounting,
    exchange,
    values,
    parameters,
  })
  module.averageBy?.(sharded)
  return sharded
}

/** Orders the buckets as gradients become complete: from the last unit to the first, then the root. */
function bucketsOf(units: readonly UnitPlan[]) {
  const chain = units.filter(({ module }) => module !== undefined).reverse()
  const root = units.filter(({ module }) => module === undefined)
  return [...chain, ...root].flatMap(({ trained }) => trained ?? [])
}

interface Parts {
  readonly groups: ShardingGroups
  readonly buckets: readonly SharedBucket[]
  readonly options: ShardingOptions
  readonly replicas: readonly ProcessGroup[]
  readonly accounting: MemoryAccounting
  readonly exchange: ReduceScatterExchange
  readonly values: Values
  readonly parameters: ModelParameters
}

/**
 * One rank's part of a sharded model; made by `fullyShard`. For a checkpoint, pass it as `model`,
 * and `stateOf(optimizer)` as `optimizer`. Each rank saves its own part.
 */
export class FullyShard<M extends Replicated = Replicated>
  extends Replica<M>
  implements PieceOwner
{
  override readonly shard: ProcessGroup
  protected override readonly exchange: ReduceScatterExchange
  readonly #parts: Parts
  readonly #owner: PieceOwner

  constructor(module: M, parts: Parts) {
    const { exchange, values, parameters, options, groups, replicas } = parts
    super(module, axesOf(groups), parameters, options, replicas, options.stage === 1)
    this.shard = groups.shard
    this.exchange = exchange
    this.#parts = parts
    this.#owner = withBuffers(values, parameters.buffers)
  }

  get stage(): ZeroStage {
    return this.#parts.options.stage
  }

  /** This rank's shards of the trained parameters: flat tensors with the names of the parameters. */
  get shards(): readonly Parameter[] {
    return this.#parts.values.shards
  }

  get updated(): readonly Parameter[] {
    return this.shards
  }

  /** The bytes and collectives that a step with one forward and one backward pass sends. */
  get traffic(): Traffic {
    const { buckets, groups, options, values } = this.#parts
    const reduced = buckets.flatMap(({ padded, share }) =>
      groups.replicate === undefined ? [padded] : [padded, share],
    )
    const sum = (lengths: readonly number[]) => lengths.reduce((total, length) => total + length, 0)
    return {
      collectives: reduced.length + values.gathered.length,
      bytes: wireBytes(options.wire) * sum(reduced) + 4 * sum(values.gathered),
    }
  }

  /** The bytes of parameters and gradients that this rank holds. */
  get memory(): StateMemory {
    return this.#parts.accounting
  }

  get recordUnits(): Averaging['recordUnits'] {
    return this.stage === 3 ? (x, options) => this.record(x, options) : undefined
  }

  /**
   * Runs the model forward and records it for a backward pass. In stage 3 all ranks must call it.
   *
   * @throws ERR_TSR_ARGUMENT while `step` is in progress, and when an optimizer has updated
   *   `shards` directly, so that other ranks lack the new values
   */
  async record(
    x: Tensor,
    options: RecordOptions = { needsInputGradient: false },
  ): Promise<ShardedRecording> {
    this.#checkStepped('record()')
    return await this.#parts.values.record(x, options, this)
  }

  /**
   * Waits for the averaged gradients of this step: for each parameter, the gradients of this rank's
   * shard. The arrays are valid until `step` or the next backward pass.
   *
   * @param tokens - with `reduction: 'token'`: the number of tokens in this rank's summed loss
   * @throws ERR_TSR_UNUSED_PARAMETERS; ERR_TSR_ARGUMENT, also when `record` would throw it;
   *   ERR_TSR_REPLICA_ENDED after a failed step or `dispose`
   */
  async gradients(tokens?: number): Promise<Map<string, Float32Array>> {
    return new Map(await this.takeGradients(tokens))
  }

  /**
   * Updates this rank's shards, and sends the new values to all ranks. The optimizer keeps state
   * only for this rank's shards, by parameter name. Await the promise before the next call.
   *
   * @throws ERR_TSR_ARGUMENT while `gradients` or another `step` is in progress; the errors of
   *   `optimizer.step`
   */
  async step(optimizer: Optimizer, gradients: Averages): Promise<void> {
    await this.update(optimizer, gradients, this.shard.spans)
  }

  async update(
    optimizer: Optimizer,
    gradients: ClippedGradients,
    recorder: SpanRecorder | undefined,
  ): Promise<void> {
    this.lifetime.checkAwaited('step()')
    timeSpan(recorder, 'optimizer', {}, () => {
      optimizer.step(this.shards, gradients)
    })
    await this.lifetime.alone('step()', () => this.#parts.values.publish())
  }

  /**
   * Unshards all parameters until `release`, so that they can be read, or used in passes without
   * `record`. In stages 1 and 2 parameters are always unsharded. All ranks must call it.
   */
  override async gather(): Promise<void> {
    this.#checkStepped('gather()')
    await this.#parts.values.gather?.()
  }

  override release(): void {
    // If `dispose` was called meanwhile, the parameter values now belong to the model.
    if (this.lifetime.isDisposed) return
    this.#parts.values.release?.()
  }

  async pieces(): Promise<readonly HeldPiece[]> {
    return await this.#owner.pieces()
  }

  parts(names: ReadonlySet<string>): readonly Part[] {
    return this.#owner.parts(names)
  }

  async load(pieces: readonly Piece[]): Promise<void> {
    await this.#owner.load(pieces)
  }

  /** Returns the optimizer state of this rank's shards, for a checkpoint. */
  stateOf(optimizer: StatefulOptimizer): PieceOwner {
    const parts = this.#parts.values.shards.map(({ part }) => part)
    return ownerOfState(optimizer, parts)
  }

  override async average(own: OwnTotals, scale: number): Promise<Averaged> {
    this.#checkStepped('gradients()')
    return await super.average(own, scale)
  }

  protected override take(factor: number, unused: ReadonlySet<string>): Averages {
    return this.exchange.take(factor, unused)
  }

  protected override close(): void {
    this.#parts.values.dispose()
    this.exchange.dispose()
  }

  /** Throws if an optimizer has updated the shards without `step`: the model still has the old values. */
  #checkStepped(what: string) {
    this.lifetime.checkAwaited(what, ['step()'])
    this.#parts.values.checkPublished?.()
  }
}
