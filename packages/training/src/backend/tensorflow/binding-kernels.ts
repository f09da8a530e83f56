import type { Handle } from './eager.ts'

/**
 * What `tsrun setup` compiles into the binding beside the package's own: functions that compute at
 * once, in the calling thread, on the memory of float32 tensors of the CPU; they refuse others.
 *
 * Each takes the handles of all its tensors in one array; layers are in the order of the forward
 * pass, and `relu` has a 1 for each that ends in one. They throw an Error where shapes do not fit.
 *
 * Source: packages/launcher/src/setup/native/passes.cc
 */
export interface BindingKernels {
  /** Values of [tensor] into an array of as many; a GPU's are brought into memory first. */
  copyOut(tensors: Int32Array, target: Float32Array): void

  /** A tensor with the array's values: a list of one. */
  copyIn(shape: Int32Array, source: Float32Array): [Handle]

  /** [x, weights..., biases...] -> the output of each layer. */
  linearForward(tensors: Int32Array, relu: Uint8Array): Handle[]

  /**
   * [x, dy, weights..., outputs...] -> gradients of the weights, of the biases, and of x if that is
   * needed. With sums for the weights and the biases as well, the gradients are added to those, and
   * only that of x is a result; false, and nothing done, where somebody else sees a sum's values.
   */
  linearBackward(
    tensors: Int32Array,
    relu: Uint8Array,
    needsInputGradient: boolean,
  ): Handle[] | false

  /** [dy, weights..., outputs...] -> gradients before each activation, of x if that is needed. */
  linearBackwardInput(tensors: Int32Array, relu: Uint8Array, needsInputGradient: boolean): Handle[]

  /**
   * [x, gradients before each activation..., outputs of all layers but the last...] -> gradients of
   * the weights, of the biases.
   */
  linearBackwardParameters(tensors: Int32Array): Handle[]

  /**
   * [value, gradient]: value = value - rate gradient. As the next two it gives the bits of
   * TensorFlow's operation, and is false as in `linearBackward`.
   */
  descend(tensors: Int32Array, rate: number): boolean

  /** [value, velocity, gradient]: velocity = momentum velocity + gradient, value = value - rate velocity. */
  descendWithMomentum(tensors: Int32Array, rate: number, momentum: number): boolean

  /** [value, mean, square, gradient], and the scalars of ResourceApplyAdam in its order. */
  adam(
    tensors: Int32Array,
    power1: number,
    power2: number,
    learningRate: number,
    beta1: number,
    beta2: number,
    epsilon: number,
  ): boolean
}
