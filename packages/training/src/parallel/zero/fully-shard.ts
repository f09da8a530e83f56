import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener, RecordOptions } from '../../autograd/recording.ts'
import type { Parameter } from '../../nn/parameter.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import { planBuckets } from '../data/buckets.ts'
import { checkSizes, trainedParameters, type Replicated } from '../data/options.ts'
import type { Traffic } from '../data/reducer.ts'
import { broadcastParameters, checkReplicas } from '../data/replicas.ts'
import { stepTraffic, type Stage } from './formulas.ts'
import { GradientShards } from './gradient-shards.ts'
import { countRanks, sumOverRanks, type ShardingGroups } from './groups.ts'
import { padBucket, type FlatBucket } from './layout.ts'
import { Ledger, type StateMemory } from './ledger.ts'
import { checkGroups, checkStage, type FullyShardOptions } from './options.ts'
import type { ShardedRecording, Values } from './values.ts'
import { WholeValues } from './whole-values.ts'

/** One rank's part of a model; see `fullyShard`. */
export interface FullyShard<M extends Replicated = Replicated> {
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

  /** Frees the buckets. */
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
  const all = [...new Set(module.parameters)]
  for (const axis of [groups.shard, groups.replicate]) {
    if (axis === undefined) continue
    await checkReplicas(all, axis)
    await broadcastParameters(all, axis, 0)
  }
  const buckets = planBuckets([...trained].reverse(), sizes).map((bucket) =>
    padBucket(bucket, groups.shard.size),
  )
  return new Sharded(module, { groups, stage, buckets, options })
}

interface Plan {
  readonly groups: ShardingGroups
  readonly stage: Stage
  readonly buckets: readonly FlatBucket[]
  readonly options: FullyShardOptions
}

class Sharded<M extends Replicated> implements FullyShard<M> {
  readonly module: M
  readonly onGradient: GradientListener
  readonly memory: Ledger
  readonly #plan: Plan
  readonly #gradients: GradientShards
  readonly #values: Values
  synchronizes = true

  constructor(module: M, plan: Plan) {
    const { groups, buckets, stage, options } = plan
    const { wire = 'float32', deterministic = false } = options
    this.module = module
    this.#plan = plan
    this.memory = new Ledger(groups.shard)
    this.#gradients = new GradientShards(groups, buckets, this.memory, {
      wire,
      deterministic,
      keepsWhole: stage === 1,
    })
    this.#values = new WholeValues(module, groups.shard, buckets, this.#gradients, this.memory)
    const names = new Set(buckets.flatMap(({ slots }) => slots.map((slot) => slot.parameter.name)))
    this.onGradient = (parameter, gradient) => {
      if (names.has(parameter.name)) this.#gradients.add(parameter, gradient, this.synchronizes)
      else gradient.dispose()
    }
  }

  get stage(): Stage {
    return this.#plan.stage
  }

  get shards(): readonly Parameter[] {
    return this.#values.shards
  }

  get traffic(): Traffic {
    const { stage, buckets, groups, options } = this.#plan
    return stepTraffic(stage, {
      buckets: buckets.map(({ padded }) => padded),
      ranks: groups.shard.size,
      replicas: groups.replicate?.size ?? 1,
      gradientBytes: (options.wire ?? 'float32') === 'float32' ? 4 : 2,
    })
  }

  async record(
    x: Tensor,
    options: RecordOptions = { needsInputGradient: false },
  ): Promise<ShardedRecording> {
    return await this.#values.record(x, options, this.onGradient)
  }

  async gradients(tokens?: number): Promise<Map<string, Float32Array>> {
    const { groups, options } = this.#plan
    const { unused = 'error', reduction = 'mean' } = options
    if ((reduction === 'token') !== (tokens !== undefined)) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'tokens',
        value: tokens ?? 'undefined',
        expected: "a number with reduction: 'token', and only there",
      })
    }
    const { missing } = this.#gradients
    if (missing.length > 0 && unused === 'error') {
      const parameters = missing.join(', ')
      throw tsrError('ERR_TSR_UNUSED_PARAMETERS', { rank: groups.shard.rank, parameters })
    }
    this.#gradients.launch()
    const ranks =
      tokens === undefined ? countRanks(groups) : await sumOverRanks(tokens, 'tokens', groups)
    return await this.#gradients.take(1 / ranks)
  }

  async step(optimizer: Optimizer, gradients: ReadonlyMap<string, Float32Array>): Promise<void> {
    optimizer.step(this.shards, gradients)
    await this.#values.publish()
  }

  dispose(): void {
    this.#values.dispose()
    this.#gradients.dispose()
  }
}
