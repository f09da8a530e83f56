import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/telemetry'
import type { Tensor } from '@tensorflow/tfjs-core'
import { ownerOfState, withBuffers, type StatefulOptimizer } from '../../checkpoint/owners.ts'
import type { Part, Piece, PieceOwner } from '../../checkpoint/piece.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { GradientListener, RecordOptions } from '../../model/recording.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import type { Replicated } from '../gradients/averaging.ts'
import { labelOf, padBucket, planBuckets, type SharedBucket } from '../gradients/buckets.ts'
import type { Traffic } from '../gradients/exchange.ts'
import { Lifetime } from '../gradients/lifetime.ts'
import { listenerOf } from '../gradients/listener.ts'
import { checkTokens, checkTrained, parametersOf, wireBytes } from '../gradients/options.ts'
import { broadcastParameters, compareFacts, markReplicated } from '../gradients/replicas.ts'
import { SharedBuffers } from '../gradients/shared-buffers.ts'
import {
  checkUsed,
  factorOf,
  powerOfTwoNear,
  TotalsSum,
  type StepTotals,
} from '../gradients/step-totals.ts'
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
import { ReduceScatterExchange } from './reduce-scatter.ts'
import { ShardedValues } from './sharded-values.ts'
import { planUnits, type UnitPlan } from './unit.ts'
import { UnshardedValues } from './unsharded-values.ts'
import type { GradientSink, ShardedRecording, Values } from './values.ts'

/**
 * One rank's part of a model: see `fullyShard`. A checkpoint takes it as the `model`, and
 * `stateOf(optimizer)` as the `optimizer`; each rank saves its own part.
 */
export interface FullyShard<M extends Replicated = Replicated> extends PieceOwner {
  readonly module: M
  readonly stage: ZeroStage
  /** This rank's parts of the parameters: flat, under the parameters' names. */
  readonly shards: readonly Parameter[]
  /**
   * Takes the gradients of backward passes that were not recorded with `record`. Its `memory`, in stage 1,
   * lets a pass write them into the buckets itself.
   */
  readonly onGradient: GradientListener
  /**
   * Whether the next backward pass is the last one of this step; true at first. While it is false,
   * unsharded gradients are accumulated without communication.
   */
  synchronizes: boolean
  /** What one step sends if it makes one forward and one backward pass. */
  readonly traffic: Traffic
  /** Bytes of parameters and gradients on this rank. */
  readonly memory: StateMemory

  /**
   * Runs the model forward. In stage 3 all ranks call it.
   *
   * @throws ERR_TSR_ARGUMENT before `step` has ended, and when an optimizer has made a step of `shards`
   *   whose values the other ranks do not have: see `step`
   */
  record(x: Tensor, options?: RecordOptions): Promise<ShardedRecording>

  /**
   * Waits for the averaged gradients of this step: for each parameter those of this rank's part. The
   * arrays are valid until `step`, or the next backward pass.
   *
   * @param tokens - with `reduction: 'token'`: the number of tokens that this rank's loss is the sum of
   * @throws ERR_TSR_UNUSED_PARAMETERS; ERR_TSR_ARGUMENT, also for the reasons of `record`;
   *   ERR_TSR_REPLICA_ENDED after a step that has failed, and after `dispose`
   */
  gradients(tokens?: number): Promise<Map<string, Float32Array>>

  /**
   * Updates this rank's parts, and gives all ranks the new values. The optimizer keeps state for this
   * rank's parts only, by the name of the parameter. Await it before you go on.
   *
   * @throws ERR_TSR_ARGUMENT before `gradients`, or another `step`, has ended; the errors of
   *   `optimizer.step`
   */
  step(optimizer: Optimizer, gradients: ReadonlyMap<string, Float32Array>): Promise<void>

  /**
   * Unshards all parameters until `release`, to read them, or for passes that are not recorded with
   * `record`. In stages 1 and 2 they always are. All ranks call it.
   */
  gather(): Promise<void>
  release(): void

  /** The state that an optimizer keeps of this rank's parts, for a checkpoint. */
  stateOf(optimizer: StatefulOptimizer): PieceOwner

  /** Frees the buckets. The model stays; in stage 3 only parameters that are unsharded at the time. */
  dispose(): void
}

/**
 * Shares the state of training among the ranks of a group, each of which has its own part of the batch
 * (ZeRO: Rajbhandari et al., 2020; like torch's FullyShardedDataParallel). The steps are those of
 * `dataParallel`; with two ranks, or with `deterministic` in both, they are the same bits. From now on
 * the `step` of a pipeline averages its gradients here, and updates this rank's parts.
 *
 * @param group - the ranks, or two axes of a mesh: ranks along `shard` share the state, and ranks along
 *   `replicate` have the same state, as in data parallel training
 *
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
  const given = readFullyShardOptions(options)
  const { frozen, units: modules, recompute, ...checked } = given
  const { stage } = checked
  const parameters = parametersOf(module, { frozen })
  const { all, trained, buffers: own } = parameters
  const ranks = groups.shard.size
  const units = stage === 3 ? planUnits(module, new Set(trained), ranks, modules) : []
  const buckets =
    stage === 3
      ? bucketsOf(units)
      : planBuckets(trained.toReversed(), checked).map((bucket) => padBucket(bucket, ranks))
  const facts = {
    kind: 'fullyShard',
    ...checked,
    recompute: recompute ?? 'as the backend needs it',
    buckets: buckets.map(labelOf),
  }
  for (const axis of axesOf(groups)) {
    await compareFacts(parameters, facts, axis)
    checkTrained(module, parameters)
    await broadcastParameters([...all, ...own], axis, 0)
  }
  markReplicated(all, true)
  const accounting = new MemoryAccounting(groups.shard)
  const keepsBuckets = stage === 1
  const { wire, deterministic } = given
  const how = { wire, deterministic, keepsBuckets }
  const exchange = new ReduceScatterExchange(groups, buckets, accounting, how)
  const values =
    stage === 3
      ? await ShardedValues.create(module, units, { group: groups.shard, accounting }, given)
      : new UnshardedValues(module, groups.shard, buckets, exchange, accounting)
  accounting.resetPeak()
  const parts = { groups, buckets, options: given, accounting, exchange, values, own }
  const sharded = new Sharded(module, parts)
  module.averageBy?.({
    onGradient: sharded.onGradient,
    reduction: checked.reduction,
    parameters: sharded.shards,
    shard: groups.shard,
    get scale() {
      return sharded.scale
    },
    gradients: (tokens, loss) => sharded.average(tokens, loss, sharded.scale),
    get totals() {
      return sharded.totals
    },
    abandon: (error) => {
      sharded.abandon(error)
    },
    update: (optimizer, shares, recorder) =>
      sharded.step(optimizer, shares as ReadonlyMap<string, Float32Array>, recorder),
    get synchronizes() {
      return sharded.synchronizes
    },
    set synchronizes(isLast) {
      sharded.synchronizes = isLast
    },
    ...(stage === 3 && { record: (x, options) => sharded.record(x, options) }),
    gather: () => sharded.gather(),
    release: () => {
      sharded.release()
    },
  })
  return sharded
}

/** In the order of their gradients: from the last unit to the first, then the root. */
function bucketsOf(units: readonly UnitPlan[]): SharedBucket[] {
  const chain = units.filter(({ module }) => module !== undefined).reverse()
  const root = units.filter(({ module }) => module === undefined)
  return [...chain, ...root].flatMap(({ trained }) => trained ?? [])
}

interface Parts {
  readonly groups: ShardingGroups
  readonly buckets: readonly SharedBucket[]
  readonly options: ShardingOptions
  readonly accounting: MemoryAccounting
  readonly exchange: ReduceScatterExchange
  readonly values: Values
  /** The buffers of the model. */
  readonly own: readonly Parameter[]
}

class Sharded<M extends Replicated> implements FullyShard<M> {
  readonly module: M
  readonly onGradient: GradientListener
  synchronizes = true
  totals: StepTotals | undefined
  /** See `Averaging`. */
  scale = 1
  /** The number of steps that have failed before a gradient was sent. */
  #abandoned = 0
  readonly #parts: Parts
  readonly #lifetime: Lifetime
  readonly #sum: TotalsSum
  readonly #sink: GradientSink
  readonly #buffers: SharedBuffers
  /** Of the parameters and the buffers. */
  readonly #owner: PieceOwner

  constructor(module: M, parts: Parts) {
    this.module = module
    this.#parts = parts
    this.#lifetime = new Lifetime(parts.groups.shard)
    const { exchange, values, own, options, groups } = parts
    this.#sum = new TotalsSum(axesOf(groups), options, exchange.names.length)
    this.#buffers = new SharedBuffers(own)
    this.#owner = withBuffers(values, own)
    this.onGradient = listenerOf({
      lifetime: this.#lifetime,
      keepsBuckets: options.stage === 1,
      exchange: () => exchange,
      synchronizes: () => this.synchronizes,
      checkPass: () => {
        this.#lifetime.checkAwaited('a backward pass')
      },
    })
    this.#sink = {
      onGradient: this.onGradient,
      makeRoom: () => exchange.makeRoom(),
      close: (end) => {
        if (this.synchronizes) exchange.startUntil(end)
      },
    }
  }

  get stage(): ZeroStage {
    return this.#parts.options.stage
  }

  get shards(): readonly Parameter[] {
    return this.#parts.values.shards
  }

  get traffic(): Traffic {
    const { buckets, groups, options, values } = this.#parts
    const gradientBytes = wireBytes(options.wire)
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
    return this.#parts.accounting
  }

  async record(
    x: Tensor,
    options: RecordOptions = { needsInputGradient: false },
  ): Promise<ShardedRecording> {
    this.#checkStepped('record()')
    return await this.#parts.values.record(x, options, this.#sink)
  }

  async gradients(tokens?: number): Promise<Map<string, Float32Array>> {
    return await this.average(tokens)
  }

  /** @param scale - what the gradients are multiplied by already */
  async average(tokens?: number, loss?: number, scale = 1): Promise<Map<string, Float32Array>> {
    const { groups, exchange, accounting, options } = this.#parts
    checkTokens(options, tokens)
    this.#checkStepped('gradients()')
    return await this.#lifetime.alone('gradients()', async () => {
      checkUsed(options, exchange, groups.shard)
      exchange.startUntil()
      const axes = axesOf(groups)
      // Between replicas, a bucket follows its reduce-scatter at a time of its own on each rank: another
      // collective over that group must not come between.
      if (groups.replicate !== undefined) await exchange.finished()
      const own = { tokens, loss, abandoned: this.#abandoned }
      this.totals = await this.#sum.sum(exchange, own)
      const { count, unused } = this.totals
      await exchange.finished()
      await this.#buffers.share(axes)
      const factor = factorOf(axes, count)
      const shares = exchange.take(factor / scale, unused)
      this.scale = powerOfTwoNear(factor)
      accounting.trim()
      return shares
    })
  }

  async step(
    optimizer: Optimizer,
    gradients: ReadonlyMap<string, Float32Array>,
    recorder = this.#parts.groups.shard.spans,
  ): Promise<void> {
    this.#lifetime.checkAwaited('step()')
    timeSpan(recorder, 'optimizer', {}, () => {
      optimizer.step(this.shards, gradients)
    })
    await this.#lifetime.alone('step()', () => this.#parts.values.publish())
    this.#parts.accounting.trim()
  }

  abandon(error: unknown): void {
    if (this.#parts.exchange.abandon()) this.#abandoned++
    else this.#lifetime.fail(error)
  }

  async gather(): Promise<void> {
    this.#checkStepped('gather()')
    await this.#parts.values.gather()
  }

  release(): void {
    // After `dispose`, which may have been called in between, the values are the model's.
    if (this.#lifetime.isDisposed) return
    this.#parts.values.release()
    this.#parts.accounting.trim()
  }

  async pieces(): Promise<readonly Piece[]> {
    return await this.#owner.pieces()
  }

  parts(names: ReadonlySet<string>, isStrict?: boolean): readonly Part[] {
    return this.#owner.parts(names, isStrict)
  }

  async load(pieces: readonly Piece[]): Promise<void> {
    await this.#owner.load(pieces)
  }

  stateOf(optimizer: StatefulOptimizer): PieceOwner {
    const parts = this.#parts.values.shards.map(({ part }) => part)
    return ownerOfState(optimizer, parts)
  }

  dispose(): void {
    if (!this.#lifetime.dispose()) return
    this.module.averageBy?.(undefined)
    this.#parts.values.dispose()
    this.#parts.exchange.dispose()
    this.#sum.dispose()
    this.#parts.accounting.trim()
    markReplicated(this.module.parameters, false)
  }

  /** Refuses to go on with the values of the step before. */
  #checkStepped(what: string): void {
    this.#lifetime.checkAwaited(what, ['step()'])
    this.#parts.values.checkPublished()
  }
}
