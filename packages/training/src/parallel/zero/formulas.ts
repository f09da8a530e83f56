import type { Traffic } from '../data/reducer.ts'

/** How much is shared among the ranks: 1 the optimizer's state, 2 gradients too, 3 parameters too. */
export type Stage = 1 | 2 | 3

export interface StateSizes {
  /** Numbers that are trained. */
  readonly parameters: number
  /** Ranks among which the state is shared. */
  readonly ranks: number
  /** Bytes that the optimizer keeps for each number; default 8, Adam's two moments. */
  readonly optimizerBytes?: number
  /** Stage 3: the most numbers of parameters that are whole at one time. */
  readonly gathered?: number
}

/**
 * Bytes of parameters, gradients and optimizer state that a rank holds, in float32 (Rajbhandari et
 * al., "ZeRO", 2020, figure 1, without a second copy of the parameters). With Adam, for each number:
 * 16 for stage 0 (data parallel), 8 + 8/n, 4 + 12/n, and 16/n beside what is whole for the moment.
 * `dataParallel` has 4 more during a step: gradients as tensors beside its buckets.
 */
export function stateBytes(
  stage: 0 | Stage,
  { parameters, ranks, optimizerBytes = 8, gathered = 0 }: StateSizes,
): number {
  const held = (fromStage: Stage): number => (stage >= fromStage ? parameters / ranks : parameters)
  const whole = stage === 3 ? 4 * gathered : 0
  return 4 * held(3) + 4 * held(2) + optimizerBytes * held(1) + whole
}

export interface TrafficSizes {
  /** Numbers of each bucket, with their padding. */
  readonly buckets: readonly number[]
  /** Ranks among which the state is shared. */
  readonly ranks: number
  /** Groups of such ranks, with a replica each; default 1. */
  readonly replicas?: number
  /** Bytes of a number of a gradient on its way; default 4. */
  readonly gradientBytes?: number
  /** Stage 3: how often a step gathers the parameters; default 2, forward and backward. */
  readonly gathers?: number
}

/**
 * What a step sends: gradients are reduce-scattered, values gathered, in stages 1 and 2 once (twice
 * the parameters, as data parallel), in stage 3 twice (three times the parameters). Replicas sum
 * their shares of the gradients in an all-reduce.
 */
export function stepTraffic(
  stage: Stage,
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
