import type { Tensor } from '@tensorflow/tfjs-core'
import { recordChain } from '../../autograd/chain.ts'
import type { RecordOptions } from '../../model/recording.ts'
import type { SegmentedRecording } from '../../autograd/chain.ts'
import type { Module } from '../../model/module.ts'
import { segmentsOf } from './segments.ts'

/**
 * `recordModule` for a model that ranks share, on every backend: cut at its collectives, each segment
 * is recorded by itself, and what the ranks exchange between the segments is awaited (one
 * vector-Jacobian product a segment). Values, gradients and messages are those of `recordModule`, to
 * the bit.
 *
 * It cuts chains of layers, such as a `ShardedMLP` of `columnParallel` and `rowParallel` layers, and
 * modules that have `segments`. What has collectives in another way (attention by heads, blocks with
 * branches, `vocabParallel`, parts of sequences) stays in one piece, whose passes block.
 *
 * All ranks make the same passes in the same order, and await each before the next starts: of any
 * number of recordings, one pass at a time.
 *
 * @param x - as of `recordModule`, the same on all ranks; stays the caller's, to be kept until the
 *   promise is settled
 * @throws ERR_TSR_BACKEND, before anything is sent, for a piece whose passes block on webgpu;
 *   ERR_TSR_NESTED_RECORDING; what the collectives fail with
 *
 * @example
 * const outputs = await recordSegments(model, x, { needsInputGradient: false })
 * const loss = recordLoss(crossEntropy, outputs.value, labels)
 * const dy = loss.backward(one, () => undefined)!
 * await outputs.backward(dy, sumInto(gradients))
 */
export async function recordSegments(
  model: Module,
  x: Tensor,
  options: RecordOptions,
): Promise<SegmentedRecording> {
  return await recordChain(segmentsOf(model), x, options)
}
