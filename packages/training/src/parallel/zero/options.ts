import {
  argumentError,
  choice,
  declareOptions,
  isObject,
  type Complete,
  type Rules,
} from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { gradientRules, type DataParallelOptions } from '../gradients/options.ts'
import { recomputeRule, type Recompute } from '../recipe.ts'
import { checkGroup } from '../requirements.ts'

/** The stage of ZeRO: 1 shards optimizer state, 2 also gradients, 3 also parameters. */
export type ZeroStage = 1 | 2 | 3

/** Options of `fullyShard`. */
export interface FullyShardOptions extends DataParallelOptions {
  /**
   * The stage of ZeRO: 1 shards optimizer state, 2 also gradients, 3 (default) also parameters. In
   * stage 3 the parameters of a unit are unsharded only while the unit computes. The units are the model's
   * `layers`, or the whole model.
   */
  readonly stage?: ZeroStage
  /**
   * Stage 3: whether all units, or which units, keep only their input and recompute their activations in
   * the backward pass; default false.
   */
  readonly recompute?: Recompute
}

const rules = {
  ...gradientRules,
  stage: choice(1, 2, 3).default(3),
  recompute: recomputeRule.default(false),
}

/** The options with all defaults filled in. */
export type ShardingOptions = Complete<typeof rules>

/** @throws ERR_TSR_ARGUMENT */
export const readFullyShardOptions = declareOptions(rules satisfies Rules<FullyShardOptions>)

/**
 * Two axes of a mesh for ZeRO with replicas. The state is sharded along `shard` and replicated along
 * `replicate`.
 */
export interface ShardingGroups {
  /** The ranks that hold different shards of the state. */
  readonly shard: ProcessGroup
  /** The ranks that hold the same shards; undefined if there is only one replica. */
  readonly replicate?: ProcessGroup
}

/**
 * Returns the axes of ZeRO from the argument `group`.
 *
 * @throws ERR_TSR_ARGUMENT unless `group` is a process group or two axes of a mesh
 */
export function readShardingGroups(group: ProcessGroup | ShardingGroups): ShardingGroups {
  if (!isShardingGroups(group)) {
    checkGroup(group)
    return { shard: group }
  }
  const { shard, replicate } = group
  checkGroup(shard, 'shard')
  // Check an undefined `replicate` too: the axis of a mesh is undefined if its name is misspelt.
  if ('replicate' in group) checkGroup(replicate, 'replicate')
  if (replicate === undefined) return group
  const shared = replicate.ranks.filter((rank) => shard.ranks.includes(rank))
  if (shared.length === 1) return replicate.size === 1 ? { shard } : group
  throw argumentError(
    'replicate',
    `ranks ${replicate.ranks.join(', ')}`,
    `one rank of the shard group (${shard.ranks.join(', ')}) and its peers elsewhere`,
  )
}

function isShardingGroups(group: ProcessGroup | ShardingGroups): group is ShardingGroups {
  return isObject(group) && 'shard' in group
}

/** Returns the groups over which gradients are averaged. */
export function axesOf({ shard, replicate }: ShardingGroups): readonly ProcessGroup[] {
  return replicate === undefined ? [shard] : [shard, replicate]
}
