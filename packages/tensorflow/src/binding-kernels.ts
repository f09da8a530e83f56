/** A TensorFlow tensor that TensorFlow.js does not know. The owner of the handle frees it. */
export type Handle = number

/**
 * The functions that `tsrun setup` compiles into the binding of tfjs-node. They compute
 * synchronously, in the calling thread, on float32 tensors in CPU memory. They throw for other
 * tensors and for shapes that do not match.
 *
 * Each function takes the handles of all its tensors in one array. Layers are in the order of the
 * forward pass. `relu` has a 1 for each layer that ends in a ReLU.
 *
 * Source: packages/doctor/src/setup/native/passes.cc
 */
export interface BindingKernels {
  /**
   * Copies the values of a tensor into an array of the same size, from a GPU through host memory.
   * The list has the handle of the tensor.
   */
  copyOut(tensors: Int32Array, target: Float32Array): void

  /** Creates a tensor with the values of the array. Returns a list with its handle. */
  copyIn(shape: Int32Array, source: Float32Array): [Handle]

  /** [x, weights..., biases...] -> the output of each layer. */
  linearForward(tensors: Int32Array, relu: Uint8Array): Handle[]

  /**
   * [x, dy, weights..., outputs...] -> the gradients of the weights, of the biases, and of x if needed.
   * If sums for the weights and the biases follow, the gradients are added to them, and the only result
   * is the gradient of x. If a sum shares its values with another tensor, does nothing and returns false.
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
   * [x, gradients before each activation..., outputs of all layers but the last...] -> the gradients of
   * the weights, then of the biases. Returns no handles if `arrays` receive the gradients.
   */
  linearBackwardParameters(
    tensors: Int32Array,
    arrays?: readonly Float32Array[],
    adds?: boolean,
  ): Handle[]

  /**
   * [value, gradient]: value = value - rate gradient. Gives the same bits as the TensorFlow
   * operation. Does nothing and returns false if another tensor shares the memory of the value.
   *
   * @param gradient - if given, the list of tensors lacks the gradient
   */
  descend(tensors: Int32Array, rate: number, gradient?: Float32Array): boolean

  /**
   * [value, velocity, gradient]: velocity = momentum velocity + gradient, value = value - rate
   * velocity. Arguments and result are as for `descend`.
   */
  descendWithMomentum(
    tensors: Int32Array,
    rate: number,
    momentum: number,
    gradient?: Float32Array,
  ): boolean

  /**
   * [value, mean, square, gradient], the scalars of ResourceApplyAdam in its order, and the factor of the
   * value before the step. Arguments and result are as for `descend`.
   */
  adam(
    tensors: Int32Array,
    power1: number,
    power2: number,
    learningRate: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    keep: number,
    gradient?: Float32Array,
  ): boolean
}
