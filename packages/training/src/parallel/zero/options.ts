import { anything, choice, declareOptions, flag, tsrError, type Complete } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Module } from '../../model/module.ts'
import { gradientRules, type DataParallelOptions } from '../gradients/options.ts'
import { checkGroup } from '../requirements.ts'

/** What the ranks shard: 1 the optimizer's state, 2 gradients too, 3 parameters too. */
export type ZeroStage = 1 | 2 | 3

export interface FullyShardOptions extends DataParallelOptions {
  /**
   * What the ranks shard: 1 the optimizer's state; 2 gradients too; 3 (default) parameters too, which are
   * then unsharded only while a unit computes with them.
   */
  readonly stage?: ZeroStage
  /**
   * Stage 3: the parts of the model that are gathered one at a time; each takes the output of the
   * previous part. Default: the model's `layers`, or the whole model at once.
   */
  readonly units?: readonly Module[]
  /**
   * Stage 3: whether parameters are resharded between the forward and the backward pass; default true.
   * False gathers them once per step.
   */
  readonly reshardAfterForward?: boolean
  /**
   * Stage 3: keeps only the input of each unit for the backward pass, and recomputes its activations.
   * Default: false if the backend can free the memory of a saved tensor, as wasm, cpu and tensorflow can;
   * otherwise `reshardAfterForward`.
   */
  readonly recompute?: boolean
}

const rules = {
  ...gradientRules,
  stage: choice(1, 2, 3).default(3),
  units: anything<readonly Module[]>(),
  reshardAfterForward: flag.default(true),
  recompute: flag.optional(),
}

/** Complete options. */
export type ShardingOptions = Complete<typeof rules>

/** @throws ERR_TSR_ARGUMENT */
export const readFullyShardOptions: (given: FullyShardOptions) => ShardingOptions =
  declareOptions(rules)

/** Two axes of a mesh: the ranks that shard the state of a replica, and the ranks of other replicas. */
export interface ShardingGroups {
  /** The ranks that hold different parts of the state. */
  readonly shard: ProcessGroup
  /** The ranks that hold the same part; left out if there is one replica. */
  readonly replicate?: ProcessGroup
}

/** @throws ERR_TSR_ARGUMENT unless `group` is a process group or two axes of a mesh */
export function readShardingGroups(group: ProcessGroup | ShardingGroups): ShardingGroups {
  if (!isShardingGroups(group)) {
    checkGroup(group)
    return { shard: group }
  }
  const { shard, replicate } = group
  checkGroup(shard, 'shard')
  // an undefined property means that an axis of a mesh was misspelt
  if ('replicate' in group) checkGroup(replicate, 'replicate')
  if (replicate === undefined) return group
  const shared = replicate.ranks.filter((rank) => shard.ranks.includes(rank))
  if (shared.length === 1) return replicate.size === 1 ? { shard } : group
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'replicate',
    value: `ranks ${replicate.ranks.join(', ')}`,
    expected: `one rank of the shard group (${shard.ranks.join(', ')}) and its peers elsewhere`,
  })
}

function isShardingGroups(
  group: ProcessGroup | ShardingGroups | null | undefined,
): group is ShardingGroups {
  return typeof group === 'object' && group !== null && 'shard' in group
}

/** The axes over which gradients are averaged. */
export function axesOf({ shard, replicate }: ShardingGroups): readonly ProcessGroup[] {
  return replicate === undefined ? [shard] : [shard, replicate]
}
