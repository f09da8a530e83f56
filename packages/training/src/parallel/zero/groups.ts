import type { ProcessGroup } from '@tsrun/distributed'

/** Two axes of a mesh: ranks that share one replica's state, and the ranks of other replicas. */
export interface ShardingGroups {
  /** Every rank of it holds another part. */
  readonly shard: ProcessGroup
  /** Every rank of it holds the same part; none: there is one replica. */
  readonly replicate?: ProcessGroup
}

export function shardingGroups(group: ProcessGroup | ShardingGroups): ShardingGroups {
  return isShardingGroups(group) ? group : { shard: group }
}

/** Whether it names axes; what is no object does not. */
export function isShardingGroups(
  group: ProcessGroup | ShardingGroups | null | undefined,
): group is ShardingGroups {
  return typeof group === 'object' && group !== null && 'shard' in group
}

/** The axes over which gradients are averaged. */
export function axesOf({ shard, replicate }: ShardingGroups): readonly ProcessGroup[] {
  return replicate === undefined ? [shard] : [shard, replicate]
}
