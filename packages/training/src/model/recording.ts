import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from './parameter.ts'

export interface RecordOptions {
  /** Whether `backward` returns the gradient of the input: false on the first stage. */
  readonly needsInputGradient: boolean
}

/**
 * A forward pass that can be run backward later. Any number may be in flight; each holds the
 * activations of its own pass until `dispose()`.
 */
export interface Recording {
  /** The output; owned by the recording. */
  readonly value: Tensor

  /**
   * Runs the pass backward from `dy`, the gradient of the output; at most once.
   *
   * Parameters that the output does not depend on get no call.
   *
   * @param dy - same shape as `value`; stays the caller's
   * @param onGradient - called once a parameter, as soon as its gradient is complete, in reverse
   *   order of use; the tensor is the callee's to dispose
   * @returns the gradient of the input, the caller's to dispose; undefined when not asked for
   * @throws ERR_TSR_BACKWARD_TWICE, ERR_TSR_ARGUMENT when `dy` has another shape,
   *   ERR_TSR_STALE_RECORDING when a parameter was replaced that the pass still needs
   */
  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined

  /**
   * The first half of `backward`: the gradient of the input, for which the neighbour waits. The
   * second half, `backwardParameters`, may come at any time later; both together do what `backward`
   * does, to the bit. What has no parameters has no halves.
   *
   * @throws as `backward`
   */
  backwardInput?(dy: Tensor): Tensor | undefined

  /** The second half, after `backwardInput`; at most once. @throws ERR_TSR_BACKWARD_TWICE */
  backwardParameters?(onGradient: GradientListener): void

  /** Frees `value` and everything saved for the backward pass. */
  dispose(): void
}

export interface GradientListener {
  (parameter: Parameter, gradient: Tensor): void

  /**
   * Gradients of former passes, by the parameter's name. A pass may add to one of them itself, in
   * place of the call, where nothing else refers to its data.
   */
  readonly sums?: ReadonlyMap<string, Tensor>
}
