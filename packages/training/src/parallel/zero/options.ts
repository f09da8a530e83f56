import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { checkChoice, checkFlag } from '../../arguments.ts'
import type { Module } from '../../model/module.ts'
import { checkGroup } from '../check-group.ts'
import type { DataParallelOptions } from '../data/options.ts'
import { isShardingGroups, shardingGroups, type ShardingGroups } from './groups.ts'
import type { Stage } from './formulas.ts'

export interface FullyShardOptions extends DataParallelOptions {
  /**
   * What the ranks share: 1 the optimizer's state; 2 gradients too; 3 (default) parameters too, which
   * are then whole for as long as a unit computes with them.
   */
  readonly stage?: Stage
  /**
   * Stage 3: the pieces of the model that are gathered one at a time; the output is that of one after
   * the other. Default: the model's `layers`, or all of it at once.
   */
  readonly units?: readonly Module[]
  /** Stage 3: false keeps what the forward pass has gathered for the backward pass; default true. */
  readonly reshardAfterForward?: boolean
  /**
   * Stage 3: keeps only the input of each unit for the backward pass, and computes the rest again.
   * Default: where the backend cannot free the memory of a tensor that is saved; wasm, cpu and
   * tensorflow can.
   */
  readonly recompute?: boolean
}

/** Names of the options that `dataParallel` has not. */
export const shardingOptions = Object.keys({
  stage: true,
  units: true,
  reshardAfterForward: true,
  recompute: true,
} satisfies Record<Exclude<keyof FullyShardOptions, keyof DataParallelOptions>, true>)

/** @throws ERR_TSR_ARGUMENT */
export function checkStage({ stage = 3, ...options }: FullyShardOptions): Stage {
  for (const name of ['reshardAfterForward', 'recompute'] as const) {
    checkFlag(name, options[name] ?? true)
  }
  checkChoice('stage', stage, [1, 2, 3])
  return stage
}

/** @throws ERR_TSR_ARGUMENT unless there is a group, or the groups are two axes of a mesh */
export function checkGroups(group: ProcessGroup | ShardingGroups): ShardingGroups {
  if (!isShardingGroups(group)) checkGroup(group)
  const groups = shardingGroups(group)
  const { shard, replicate } = groups
  checkGroup(shard, 'shard')
  // one that is there and undefined is the misspelt axis of a mesh
  if ('replicate' in groups) checkGroup(replicate, 'replicate')
  if (replicate === undefined) return groups
  const shared = replicate.ranks.filter((rank) => shard.ranks.includes(rank))
  if (shared.length === 1) return replicate.size === 1 ? { shard } : groups
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'replicate',
    value: `ranks ${replicate.ranks.join(', ')}`,
    expected: `one rank of the shard group (${shard.ranks.join(', ')}) and its peers elsewhere`,
  })
}
