/** A tensor of TensorFlow that is unknown to TensorFlow.js. Its owner frees it. */
export type Handle = number

/**
 * The functions that `tsrun setup` compiles into the binding in addition to the package's. They compute
 * synchronously, in the calling thread, on the memory of float32 tensors on the CPU. They throw an error
 * for other tensors and for shapes that do not match.
 *
 * Each takes the handles of all its tensors in one array. Layers are in the order of the forward pass,
 * and `relu` has a 1 for each layer that ends in a ReLU.
 *
 * Source: packages/launcher/src/setup/native/passes.cc
 */
export interface BindingKernels {
  /** Whether gradients may be arrays; absent in older bindings. */
  readonly takesArrays?: true

  /** Copies the values of [tensor] into an array of the same size, from a GPU through host memory. */
  copyOut(tensors: Int32Array, target: Float32Array): void

  /** Creates a tensor with the values of the array. The list contains only its handle. */
  copyIn(shape: Int32Array, source: Float32Array): [Handle]

  /** [x, weights..., biases...] -> the output of each layer. */
  linearForward(tensors: Int32Array, relu: Uint8Array): Handle[]

  /**
   * [x, dy, weights..., outputs...] -> the gradients of the weights, of the biases, and of x if needed.
   * If sums for the weights and the biases follow, the gradients are added to them, and the only result
   * is the gradient of x. If a sum shares its values with another tensor, does nothing and returns
   * false.
   *
   * @param arrays - arrays for the weights and the biases, to which the gradients are written or added;
   *   then the only result is the gradient of x
   */
  linearBackward(
    tensors: Int32Array,
    relu: Uint8Array,
    needsInputGradient: boolean,
    arrays?: readonly Float32Array[],
    adds?: boolean,
  ): Handle[] | false

  /** [dy, weights..., outputs...] -> the gradients before each activation, and of x if needed. */
  linearBackwardInput(tensors: Int32Array, relu: Uint8Array, needsInputGradient: boolean): Handle[]

  /**
   * [x, gradients before each activation..., outputs of all layers but the last...] -> the gradients
   * of the weights, then of the biases; nothing, if they are written or added to `arrays`.
   */
  linearBackwardParameters(
    tensors: Int32Array,
    arrays?: readonly Float32Array[],
    adds?: boolean,
  ): Handle[]

  /**
   * [value, gradient]: value = value - rate gradient. Like the next two methods, it gives the same bits
   * as the operation of TensorFlow, and returns false in the same case as `linearBackward`.
   *
   * @param gradient - replaces the last tensor, here and in the next two methods
   */
  descend(tensors: Int32Array, rate: number, gradient?: Float32Array): boolean

  /** [value, velocity, gradient]: velocity = momentum velocity + gradient, value = value - rate velocity. */
  descendWithMomentum(
    tensors: Int32Array,
    rate: number,
    momentum: number,
    gradient?: Float32Array,
  ): boolean

  /** [value, mean, square, gradient], and the scalars of ResourceApplyAdam in its order. */
  adam(
    tensors: Int32Array,
    power1: number,
    power2: number,
    learningRate: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    gradient?: Float32Array,
  ): boolean
}
