import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener, RecordOptions } from '../../autograd/recording.ts'
import { ownerOfState, type StatefulOptimizer } from '../../checkpoint/owners.ts'
import type { Part, Piece, PieceOwner } from '../../checkpoint/piece.ts'
import type { Parameter } from '../../nn/parameter.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import { planBuckets } from '../data/buckets.ts'
import { checkSizes, trainedParameters, type Replicated } from '../data/options.ts'
import type { Traffic } from '../data/reducer.ts'
import { broadcastParameters, checkReplicas } from '../data/replicas.ts'
import type { Stage } from './formulas.ts'
import { GradientShards } from './gradient-shards.ts'
import { countRanks, sumOverRanks, type ShardingGroups } from './groups.ts'
import { padBucket, type FlatBucket } from './layout.ts'
import { Ledger, type StateMemory } from './ledger.ts'
import { checkGroups, checkStage, type FullyShardOptions } from './options.ts'
import { ShardedValues } from './sharded-values.ts'
import { planUnits, type UnitPlan } from './units.ts'
import type { GradientSink, ShardedRecording, Values } from './values.ts'
import { WholeValues } from './whole-values.ts'

/**
 * One rank's part of a model; see `fullyShard`. A checkpoint takes it as the `model`, and
 * `stateOf(optimizer)` as the `optimizer`: each rank saves its own part.
 */
export interface FullyShard<M extends Replicated = Replicated> extends PieceOwner {
  readonly module: M
  readonly stage: Stage
  /** This rank's parts of the parameters: flat, under the parameters' names. */
  readonly shards: readonly Parameter[]
  /** Takes gradients of backward passes that `record` did not make. */
  readonly onGradient: GradientListener
  /**
   * Whether the next backward pass is the last of this step, true at first. False accumulates its
   * gradients, whole and without communication of them.
   */
  synchronizes: boolean
  /** What one step sends, as long as each makes one forward and one backward pass. */
  readonly traffic: Traffic
  /** Bytes of parameters and gradients on this rank. */
  readonly memory: StateMemory

  /** Runs the model forward; in stage 3 all ranks call it. */
  record(x: Tensor, options?: RecordOptions): Promise<ShardedRecording>

  /**
   * Waits for the gradients of this step: by parameter, those of this rank's part. The arrays are
   * valid until `step`, or the next backward pass.
   *
   * @param tokens - with `reduction: 'token'`: how many this rank's loss is the sum of
   * @throws ERR_TSR_UNUSED_PARAMETERS
   */
  gradients(tokens?: number): Promise<Map<string, Float32Array>>

  /**
   * Updates this rank's parts, and gives all ranks the new values. The optimizer keeps its state for
   * this rank's part only, by name of the parameter.
   */
  step(optimizer: Optimizer, gradients: ReadonlyMap<string, Float32Array>): Promise<void>

  /**
   * Makes all parameters whole until `release`, to read them, or for passes that `record` does not
   * make. Stages 1 and 2: they are. All ranks call it.
   */
  gather(): Promise<void>
  release(): void

  /** What an optimizer keeps of this rank's parts, for a checkpoint. */
  stateOf(optimizer: StatefulOptimizer): PieceOwner

  /** Frees the buckets. The model stays; in stage 3 only what is whole at this time. */
  dispose(): void
}

/**
 * Shares the state of training among the ranks of a group, while each has its own part of the batch
 * (ZeRO: Rajbhandari et al., 2020; as torch's FullyShardedDataParallel). The steps are those of
 * `dataParallel`; with two ranks, or `deterministic` in both, to the bit.
 *
 * @param group - the ranks, or two axes of a mesh: state is shared along `shard`, and as in data
 *   parallel training the same along `replicate`
 *
 * @example
 * const sharded = await fullyShard(model, group, { stage: 2 })
 * const outputs = await sharded.record(x)
 * const loss = recordLoss(crossEntropy, outputs.value, labels)
 * const dy = loss.backward(one, () => undefined)!
 * await outputs.backward(dy)
 * await sharded.step(optimizer, await sharded.gradients())
 *
 * A pipeline's `step` goes through it from now on: it averages, and updates the parts.
 *
 * @throws ERR_TSR_REPLICA when the ranks have other parameters, ERR_TSR_ARGUMENT
 */
export async function fullyShard<M extends Replicated>(
  module: M,
  group: ProcessGroup | ShardingGroups,
  options: FullyShardOptions = {},
): Promise<FullyShard<M>> {
  const groups = checkGroups(group)
  const stage = checkStage(options)
  const trained = trainedParameters(module, options)
  const sizes = checkSizes(options)
  const names = new Set(trained.map(({ name }) => name))
  const units = stage === 3 ? planUnits(module, names, groups.shard.size, options) : []
  const all = [...new Set(module.parameters)]
  for (const axis of [groups.shard, groups.replicate]) {
    if (axis === undefined) continue
    await checkReplicas(all, axis)
    await broadcastParameters(all, axis, 0)
  }
  const buckets =
    stage === 3
      ? bucketsOf(units)
      : planBuckets([...trained].reverse(), sizes).map((bucket) =>
          padBucket(bucket, groups.shard.size),
        )
  const { wire = 'float32', deterministic = false } = options
  const ledger = new Ledger(groups.shard)
  const gradients = new GradientShards(groups, buckets, ledger, {
    wire,
    deterministic,
    averages: averagesOnTheWay(groups, options),
    keepsWhole: stage === 1,
  })
  const values =
    stage === 3
      ? await ShardedValues.create(module, units, { group: groups.shard, ledger }, options)
      : new WholeValues(module, groups.shard, buckets, gradients, ledger)
  ledger.resetPeak()
  const parts = { groups, stage, buckets, options, ledger, gradients, values }
  const sharded = new Sharded(module, parts)
  module.averageBy?.({
    onGradient: sharded.onGradient,
    reduction: options.reduction ?? 'mean',
    parameters: sharded.shards,
    shard: groups.shard,
    gradients: (tokens) => sharded.gradients(tokens),
    update: (optimizer, shares) =>
      sharded.step(optimizer, shares as ReadonlyMap<string, Float32Array>),
    gather: () => sharded.gather(),
    release: () => {
      sharded.release()
    },
  })
  return sharded
}

/** Otherwise gradients are divided when they are there: in 16 bits, or by tokens or all replicas. */
function averagesOnTheWay(
  { replicate }: ShardingGroups,
  { reduction, wire = 'float32' }: FullyShardOptions,
): boolean {
  return reduction !== 'token' && wire === 'float32' && replicate === undefined
}

/** In the order of their gradients: from the last unit to the first, and what several have used. */
function bucketsOf(units: readonly UnitPlan[]): FlatBucket[] {
  const chain = units.filter(({ module }) => module !== undefined).reverse()
  const root = units.filter(({ module }) => module === undefined)
  return [...chain, ...root].flatMap(({ trained }) => trained ?? [])
}

interface Parts {
  readonly groups: ShardingGroups
  readonly stage: Stage
  readonly buckets: readonly FlatBucket[]
  readonly options: FullyShardOptions
  readonly ledger: Ledger
  readonly gradients: GradientShards
  readonly values: Values
}

class Sharded<M extends Replicated> implements FullyShard<M> {
  readonly module: M
  readonly onGradient: GradientListener
  readonly #parts: Parts
  readonly #sink: GradientSink
  synchronizes = true

  constructor(module: M, parts: Parts) {
    this.module = module
    this.#parts = parts
    const { gradients, buckets } = parts
    const names = new Set(buckets.flatMap(({ slots }) => slots.map((slot) => slot.parameter.name)))
    this.#sink = {
      take: (parameter, gradient, isComplete) => {
        if (!names.has(parameter.name)) gradient.dispose()
        else gradients.add(parameter, gradient, isComplete && this.synchronizes)
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
    const gradientBytes = (options.wire ?? 'float32') === 'float32' ? 4 : 2
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
    return await this.#parts.values.record(x, options, this.#sink)
  }

  async gradients(tokens?: number): Promise<Map<string, Float32Array>> {
    const { groups, gradients, ledger, options } = this.#parts
    const { unused = 'error', reduction = 'mean' } = options
    if ((reduction === 'token') !== (tokens !== undefined)) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'tokens',
        value: tokens ?? 'undefined',
        expected: "a number with reduction: 'token', and only there",
      })
    }
    const { missing } = gradients
    if (missing.length > 0 && unused === 'error') {
      const parameters = missing.join(', ')
      throw tsrError('ERR_TSR_UNUSED_PARAMETERS', { rank: groups.shard.rank, parameters })
    }
    gradients.launch()
    const count =
      tokens === undefined ? countRanks(groups) : await sumOverRanks(tokens, 'tokens', groups)
    const isDone = averagesOnTheWay(groups, options)
    // no example anywhere, no gradient
    const shares = await gradients.take(isDone ? 1 : count === 0 ? 0 : 1 / count)
    ledger.trim()
    return shares
  }

  async step(optimizer: Optimizer, gradients: ReadonlyMap<string, Float32Array>): Promise<void> {
    optimizer.step(this.shards, gradients)
    await this.#parts.values.publish()
    this.#parts.ledger.trim()
  }

  async gather(): Promise<void> {
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

  load(pieces: readonly Piece[]): void {
    this.#parts.values.load(pieces)
  }

  stateOf(optimizer: StatefulOptimizer): PieceOwner {
    const parts = this.#parts.values.shards.map(({ part }) => part)
    return ownerOfState(optimizer, parts)
  }

  dispose(): void {
    this.module.averageBy?.(undefined)
    this.#parts.values.dispose()
    this.#parts.gradients.dispose()
    this.#parts.ledger.trim()
  }
}
