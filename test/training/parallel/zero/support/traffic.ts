import type { Traffic, ZeroStage } from '@tsrun/training'

export interface TrafficSizes {
  /** Elements of each bucket, with the padding. */
  readonly buckets: readonly number[]
  /** The number of ranks that share the state. */
  readonly ranks: number
  /** The number of groups of such ranks, with a replica each; default 1. */
  readonly replicas?: number
  /** Bytes of an element of a gradient while it travels; default 4. */
  readonly gradientBytes?: number
  /** Stage 3: how often a step gathers the parameters; default 2, forward and backward. */
  readonly gathers?: number
}

/**
 * What a step sends: gradients are reduce-scattered; values are gathered, in stages 1 and 2 once (twice
 * the parameters, as in data parallel training), in stage 3 twice (three times the parameters).
 * Replicas sum their shares of the gradients in an all-reduce.
 */
export function stepTraffic(
  stage: ZeroStage,
  { buckets, ranks, replicas = 1, gradientBytes = 4, gathers = stage === 3 ? 2 : 1 }: TrafficSizes,
): Traffic {
  const padded = buckets.reduce((sum, length) => sum + length, 0)
  const shares = replicas > 1 ? padded / ranks : 0
  const perBucket = 1 + gathers + (replicas > 1 ? 1 : 0)
  return {
    collectives: perBucket * buckets.length,
    bytes: (padded + shares) * gradientBytes + gathers * padded * 4,
  }
}
