import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { DataParallelOptions } from '../data/options.ts'
import { shardingGroups, type ShardingGroups } from './groups.ts'
import type { Stage } from './formulas.ts'

export interface FullyShardOptions extends DataParallelOptions {
  /**
   * What the ranks share: 1 the optimizer's state; 2 (default) gradients too.
   */
  readonly stage?: Exclude<Stage, 3>
}

/** @throws ERR_TSR_ARGUMENT */
export function checkStage({ stage = 2 }: FullyShardOptions): Stage {
  if ([1, 2].includes(stage)) return stage
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'stage', value: stage, expected: '1 or 2' })
}

/** @throws ERR_TSR_ARGUMENT unless the groups are two axes of a mesh */
export function checkGroups(group: ProcessGroup | ShardingGroups): ShardingGroups {
  const groups = shardingGroups(group)
  const { shard, replicate } = groups
  const shared = replicate?.ranks.filter((rank) => shard.ranks.includes(rank)) ?? []
  if (replicate === undefined || shared.length === 1) return groups
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'replicate',
    value: `ranks ${replicate.ranks.join(', ')}`,
    expected: `one rank of the shard group (${shard.ranks.join(', ')}) and its peers elsewhere`,
  })
}
