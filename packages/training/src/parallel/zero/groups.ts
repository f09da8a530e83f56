import type { ProcessGroup } from '@tsrun/distributed'

/** Two axes of a mesh: ranks that share one replica's state, and the ranks of other replicas. */
export interface ShardingGroups {
  /** Every rank of it holds another part. */
  readonly shard: ProcessGroup
  /** Every rank of it holds the same part; none: there is one replica. */
  readonly replicate?: ProcessGroup
}

export function shardingGroups(group: ProcessGroup | ShardingGroups): ShardingGroups {
  return 'shard' in group ? group : { shard: group }
}

/** All ranks whose gradients are averaged. */
export function countRanks({ shard, replicate }: ShardingGroups): number {
  return shard.size * (replicate?.size ?? 1)
}

/** The sum of a number over all of them. */
export async function sumOverRanks(
  value: number,
  label: string,
  { shard, replicate }: ShardingGroups,
): Promise<number> {
  const total = shard.alloc('float64', 1)
  try {
    total[0] = value
    await shard.allReduce(total, { label })
    await replicate?.allReduce(total, { label })
    return total[0]
  } finally {
    shard.free(total)
  }
}
