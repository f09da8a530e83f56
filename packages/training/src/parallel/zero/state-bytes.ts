import type { ZeroStage } from './options.ts'

export interface StateSizes {
  /** The number of trained values. */
  readonly parameters: number
  /** The number of ranks that shard the state. */
  readonly ranks: number
  /** Bytes that the optimizer keeps for each value; default 8, the two moments of Adam. */
  readonly optimizerBytes?: number
  /** Stage 3: the most values of parameters that are unsharded at one time. */
  readonly gathered?: number
}

/**
 * Bytes of parameters, gradients and optimizer state that a rank holds, in float32 (Rajbhandari et al.,
 * "ZeRO", 2020, figure 1, without a second copy of the parameters). With Adam these are per value: 16 for
 * stage 0 (data parallel), 8 + 8/n for stage 1, 4 + 12/n for stage 2, and 16/n for stage 3 plus the
 * unsharded parameters. During a step `dataParallel` holds 4 more: gradients as tensors in addition to
 * its buckets.
 */
export function stateBytes(
  stage: 0 | ZeroStage,
  { parameters, ranks, optimizerBytes = 8, gathered = 0 }: StateSizes,
): number {
  const held = (fromStage: ZeroStage): number =>
    stage >= fromStage ? parameters / ranks : parameters
  const unsharded = stage === 3 ? 4 * gathered : 0
  return 4 * held(3) + 4 * held(2) + optimizerBytes * held(1) + unsharded
}
