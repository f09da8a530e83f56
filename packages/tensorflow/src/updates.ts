import type { Tensor } from '@tensorflow/tfjs-core'
import type { Gradient, Store, UpdatesInPlace } from '@tsrun/training/backends'
import type { BindingKernels, Handle } from './binding-kernels.ts'
import { currentEager, type Eager } from './eager.ts'

/**
 * The largest number of elements (1 MiB) for a binding kernel, which uses one thread. For larger tensors,
 * TensorFlow's threads are faster. The resulting bits are the same.
 */
const LARGEST_CALL = 2 ** 18

type Kernel = (kernels: BindingKernels, handles: Int32Array, gradient?: Float32Array) => boolean

/** Updates small tensors with kernels of the binding, large ones with operations of TensorFlow. */
function eagerUpdates(eager: Eager): UpdatesInPlace {
  const variables = ['first', 'second', 'third'].map((name) => eager.variable(name))
  const empty = eager.scalar(0)
  const scalars = new Map<number, Handle>()
  let areVariablesEmpty = true

  /** Returns a scalar tensor, cached until the end of the step: most parameters use the same factors. */
  const scalarOf = (value: number) => {
    const scalar = scalars.get(value) ?? eager.scalar(value)
    scalars.set(value, scalar)
    return scalar
  }
  /** @returns whether a kernel has updated the values of the tensors in place */
  const call = (tensors: readonly Tensor[], gradient: Gradient, store: Store, kernel: Kernel) => {
    const { kernels } = eager
    if (kernels === undefined) return false
    if (tensors[0]!.size > LARGEST_CALL && eager.threads > 1) return false
    if (!tensors.every((tensor) => eager.isAlone(tensor))) return false
    let isDone = false
    try {
      const array = ArrayBuffer.isView(gradient) ? gradient : undefined
      const inputs = ArrayBuffer.isView(gradient) ? tensors : [...tensors, gradient]
      isDone = kernel(kernels, eager.handlesOf(inputs), array)
    } catch (error) {
      store([...tensors])
      throw error
    }
    if (isDone) store(tensors.map((tensor) => eager.retake(tensor)))
    return isDone
  }
  /**
   * @param kernel - updates with a kernel of the binding
   * @param operation - the operation of TensorFlow. Its inputs are the variables, the numbers `before`,
   *   the gradient, and the numbers `after`
   * @param keep - the factor of the value before the operation
   */
  const update = (
    tensors: readonly Tensor[],
    gradient: Gradient,
    store: Store,
    kernel: Kernel,
    operation: string,
    before: readonly number[],
    after: readonly number[] = [],
    keep = 1,
  ) => {
    if (call(tensors, gradient, store, kernel)) return
    const isArray = ArrayBuffer.isView(gradient)
    const shapes = tensors.map(({ shape }) => shape)
    const copy = isArray ? eager.copyIn(gradient, shapes[0]!) : undefined
    areVariablesEmpty = false
    for (const [i, tensor] of tensors.entries()) {
      const isKept = i > 0 || keep === 1
      const value = isKept ? tensor : eager.multiply(eager.handleOf(tensor), scalarOf(keep))
      eager.assign(variables[i]!, value)
      if (value !== tensor) eager.free(value as Handle)
    }
    // Dispose the tensors first: TensorFlow copies values before it changes them if another tensor refers
    // to them.
    for (const tensor of tensors) tensor.dispose()
    try {
      const used = variables.slice(0, tensors.length)
      const given = copy ?? (gradient as Tensor)
      eager.apply(operation, [...used, ...before.map(scalarOf), given, ...after.map(scalarOf)])
    } finally {
      if (copy !== undefined) eager.free(copy)
      store(shapes.map((shape, i) => eager.take(eager.read(variables[i]!), shape)))
    }
  }

  return {
    descend(value, gradient, rate, store) {
      update(
        [value],
        gradient,
        store,
        (kernels, handles, array) => kernels.descend(handles, rate, array),
        'ResourceApplyGradientDescent',
        [rate],
      )
    },

    descendWithMomentum(tensors, gradient, { rate, momentum }, store) {
      update(
        tensors,
        gradient,
        store,
        (kernels, handles, array) => kernels.descendWithMomentum(handles, rate, momentum, array),
        'ResourceApplyMomentum',
        [rate],
        [momentum],
      )
    },

    /**
     * Passes TensorFlow a corrected epsilon. TensorFlow adds epsilon before the bias correction of the mean
     * square (Kingma & Ba, 2015, end of section 2); torch adds it afterwards.
     */
    adam(tensors, gradient, { learningRate, betas, step, epsilon, keep }, store) {
      const [beta1, beta2] = betas
      // Round the betas to float32 as TensorFlow does, so that rounding errors cancel in the bias
      // correction.
      const [power1, power2] = [Math.fround(beta1) ** step, Math.fround(beta2) ** step]
      const corrected = epsilon * Math.sqrt(1 - power2)
      const factors = [power1, power2, learningRate, beta1, beta2, corrected] as const
      update(
        tensors,
        gradient,
        store,
        (kernels, handles, array) => kernels.adam(handles, ...factors, keep, array),
        'ResourceApplyAdam',
        factors,
        [],
        keep,
      )
    },

    finish() {
      if (areVariablesEmpty) return
      areVariablesEmpty = true
      for (const variable of variables) eager.assign(variable, empty)
      for (const scalar of scalars.values()) eager.free(scalar)
      scalars.clear()
    },
  }
}

const updates = new WeakMap<Eager, UpdatesInPlace>()

/** Returns the in-place updates on the CPU; undefined on a GPU. */
export function updatesInPlace(): UpdatesInPlace | undefined {
  const eager = currentEager()
  if (eager?.isOnHost !== true) return undefined
  const found = updates.get(eager) ?? eagerUpdates(eager)
  updates.set(eager, found)
  return found
}
