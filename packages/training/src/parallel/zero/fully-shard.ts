import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener, RecordOptions } from '../../model/recording.ts'
import type { StatefulOptimizer } from '../../checkpoint/owners.ts'
import type { PieceOwner } from '../../checkpoint/piece.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import { labelOf, planBuckets } from '../data/buckets.ts'
import {
  checkOptions,
  checkTrained,
  distinctParameters,
  trainedParameters,
  type Replicated,
} from '../data/options.ts'
import type { Traffic } from '../data/reducer.ts'
import { markReplicated } from '../data/replicated.ts'
import { broadcastParameters, checkFacts, describeReplica } from '../data/replicas.ts'
import type { Stage } from './formulas.ts'
import { GradientShards } from './gradient-shards.ts'
import { axesOf, type ShardingGroups } from './groups.ts'
import { padBucket, type FlatBucket } from './layout.ts'
import { Ledger, type StateMemory } from './ledger.ts'
import { checkGroups, checkStage, shardingOptions, type FullyShardOptions } from './options.ts'
import { Sharded } from './sharded.ts'
import { ShardedValues } from './sharded-values.ts'
import { planUnits, type UnitPlan } from './units.ts'
import type { ShardedRecording } from './values.ts'
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

  /**
   * Runs the model forward; in stage 3 all ranks call it.
   *
   * @throws ERR_TSR_ARGUMENT before `step` has ended, and when an optimizer has made a step of `shards`
   *   whose values the others have not got: see `step`
   */
  record(x: Tensor, options?: RecordOptions): Promise<ShardedRecording>

  /**
   * Waits for the gradients of this step: by parameter, those of this rank's part. The arrays are
   * valid until `step`, or the next backward pass.
   *
   * @param tokens - with `reduction: 'token'`: how many this rank's loss is the sum of
   * @throws ERR_TSR_UNUSED_PARAMETERS; ERR_TSR_ARGUMENT, as of `record` too; ERR_TSR_REPLICA_ENDED
   *   after a step that has failed, and after `dispose`
   */
  gradients(tokens?: number): Promise<Map<string, Float32Array>>

  /**
   * Updates this rank's parts, and gives all ranks the new values. The optimizer keeps its state for
   * this rank's part only, by name of the parameter. It has to be awaited before anything else.
   *
   * @throws ERR_TSR_ARGUMENT before `gradients`, or another `step`, has ended; as of `optimizer.step`
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
 * `dataParallel`; with two ranks, or `deterministic` in both, to the bit. A pipeline's `step` goes
 * through it from now on: it averages, and updates the parts.
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
 * @throws ERR_TSR_REPLICA when the ranks have other parameters or options, ERR_TSR_ARGUMENT
 */
export async function fullyShard<M extends Replicated>(
  module: M,
  group: ProcessGroup | ShardingGroups,
  options: FullyShardOptions = {},
): Promise<FullyShard<M>> {
  const groups = checkGroups(group)
  const stage = checkStage(options)
  const checked = checkOptions(options, shardingOptions)
  const all = distinctParameters(module)
  const trained = trainedParameters(all, options)
  const names = new Set(trained.map(({ name }) => name))
  const units = stage === 3 ? planUnits(module, names, groups.shard.size, options) : []
  const buckets =
    stage === 3
      ? bucketsOf(units)
      : planBuckets([...trained].reverse(), checked.sizes).map((bucket) =>
          padBucket(bucket, groups.shard.size),
        )
  const facts = describeReplica(all, trained, {
    ...checked,
    kind: `stage ${stage}`,
    reshardAfterForward: options.reshardAfterForward ?? true,
    recompute: options.recompute ?? 'where it has to',
    buckets: buckets.map(labelOf),
  })
  for (const axis of axesOf(groups)) {
    await checkFacts(facts, axis)
    checkTrained(module, trained)
    await broadcastParameters(all, axis, 0)
  }
  markReplicated(all)
  const ledger = new Ledger(groups.shard)
  const keepsWhole = stage === 1
  const gradients = new GradientShards(groups, buckets, ledger, { ...checked, keepsWhole })
  const values =
    stage === 3
      ? await ShardedValues.create(module, units, { group: groups.shard, ledger }, options)
      : new WholeValues(module, groups.shard, buckets, gradients, ledger)
  ledger.resetPeak()
  const parts = { groups, stage, buckets, options: checked, ledger, gradients, values }
  const sharded = new Sharded(module, parts)
  module.averageBy?.({
    onGradient: sharded.onGradient,
    reduction: checked.reduction,
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

/** In the order of their gradients: from the last unit to the first, and what several have used. */
function bucketsOf(units: readonly UnitPlan[]): FlatBucket[] {
  const chain = units.filter(({ module }) => module !== undefined).reverse()
  const root = units.filter(({ module }) => module === undefined)
  return [...chain, ...root].flatMap(({ trained }) => trained ?? [])
}
