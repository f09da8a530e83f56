import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../model/recording.ts'

/** A `Recording` of a model in segments, whose backward pass awaits what ranks exchange between them. */
export interface SegmentedRecording {
  /** The output; owned by the recording. */
  readonly value: Tensor

  /**
   * As `backward` of a `Recording`; dispose the recording when it has settled, not before. Gradients
   * of parameters come while that of a segment's input travels.
   *
   * @param dy - same shape as `value`; stays the caller's, to be kept until the promise is settled
   * @param onGradient - called once a parameter, as soon as its gradient is complete; the tensor is
   *   the callee's to dispose
   * @returns the gradient of the input, the caller's to dispose; undefined when not asked for
   * @throws ERR_TSR_BACKWARD_TWICE, ERR_TSR_ARGUMENT when `dy` has another shape,
   *   ERR_TSR_STALE_RECORDING when a parameter was replaced that the pass still needs; what the
   *   collectives fail with
   */
  backward(dy: Tensor, onGradient: GradientListener): Promise<Tensor | undefined>

  /** Frees `value` and everything saved for the backward pass. */
  dispose(): void
}
