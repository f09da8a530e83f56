import type { ZeroStage } from './options.ts'

/** The size of a model and of its optimizer state, for `stateBytes`. */
export interface StateSizes {
  /** The number of trained values in the model. */
  readonly parameters: number
  /** The number of ranks among which the state is sharded. */
  readonly ranks: number
  /** Bytes of optimizer state per value; default 8, for the two moments of Adam. */
  readonly optimizerBytes?: number
  /** Stage 3: the largest number of parameter values that are unsharded at one time. */
  readonly gathered?: number
}

/**
 * Returns the bytes of parameters, gradients and optimizer state on one rank, in float32
 * (Rajbhandari et al., "ZeRO", 2020, figure 1, without a second copy of the parameters).
 *
 * With Adam and n ranks, the bytes per value are: 16 without sharding, 8 + 8/n in stage 1, 4 + 12/n
 * in stage 2, and 16/n in stage 3 plus the unsharded parameters. During a step `dataParallel` holds
 * 4 more bytes per value: gradients as tensors in addition to its buckets.
 */
export function stateBytes(
  stage: 0 | ZeroStage,
  { parameters, ranks, optimizerBytes = 8, gathered = 0 }: StateSizes,
): number {
  const held = (fromStage: ZeroStage) => (stage >= fromStage ? parameters / ranks : parameters)
  const unsharded = stage === 3 ? 4 * gathered : 0
  return 4 * held(3) + 4 * held(2) + optimizerBytes * held(1) + unsharded
}
