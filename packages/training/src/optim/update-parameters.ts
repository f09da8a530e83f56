import type { Tensor } from '@tensorflow/tfjs-core'
import { createTensor, tensorFrom, viewOf } from '../backend/host-memory.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import type { Gradient, UpdatesInPlace } from '../tfjs/backend.ts'
import { tf } from '../tfjs/tfjs.ts'
import { withGradients } from './optimizer.ts'
import type { Gradients } from './state.ts'

/**
 * Prepares the update of a parameter. The function that it returns writes the next values. That must not
 * allocate tensors, because the arrays may be the memory of tensors, and an allocation could detach
 * them. `next` and `gradient` may be the same array.
 */
export type HostUpdate = (
  parameter: Parameter,
) => (next: Float32Array, value: Float32Array, gradient: Float32Array) => void

/** Updates parameters on backends whose tensors the host can access: new tensors replace the old ones. */
export function updateOnHost(
  parameters: readonly Parameter[],
  gradients: Gradients,
  update: HostUpdate,
): void {
  for (const [parameter, gradient] of withGradients(parameters, gradients)) {
    const { value, shape } = parameter
    const isArray = ArrayBuffer.isView(gradient)
    const write = update(parameter)
    const next = createTensor(shape, (values) => {
      // Kernels can only access the memory of the backend, so an array is copied there first.
      if (isArray) values.set(gradient)
      write(values, viewOf(value), isArray ? values : viewOf(gradient))
    })
    replaceValue(parameter, next)
    if (!isArray) gradient.dispose()
  }
}

/** Computes the next value of a parameter with operations of TensorFlow.js. Called in a tf.tidy. */
export type DeviceUpdate = (value: Tensor, gradient: Tensor, parameter: Parameter) => Tensor

/** As `updateOnHost`, for backends whose tensors the host cannot access: nothing is fetched. */
export function updateOnDevice(
  parameters: readonly Parameter[],
  gradients: Gradients,
  update: DeviceUpdate,
): void {
  for (const [parameter, given] of withGradients(parameters, gradients)) {
    const gradient = asTensor(given, parameter)
    const next = tf.tidy(() => tf.keep(update(parameter.value, gradient, parameter)))
    replaceValue(parameter, next)
    gradient.dispose()
  }
}

/** gradient + decay value, a new tensor; the gradient itself if the decay is 0. */
export function addDecay(gradient: Tensor, decay: number, value: Tensor): Tensor {
  return decay === 0 ? gradient : tf.tidy(() => tf.add(gradient, tf.mul(value, decay)))
}

/** Updates a parameter in place, and passes its value to `store`. */
export type UpdateInPlace = (
  parameter: Parameter,
  gradient: Gradient,
  store: (value: Tensor) => void,
) => void

/**
 * As `updateOnDevice`, with the optimizer steps in place that a backend has.
 *
 * @param decayOf - the multiple of the value that is added to the gradient
 */
export function updateInPlace(
  parameters: readonly Parameter[],
  gradients: Gradients,
  updates: UpdatesInPlace,
  decayOf: (parameter: Parameter) => number,
  update: UpdateInPlace,
): void {
  const run = (parameter: Parameter, gradient: Gradient): void => {
    update(parameter, gradient, (value) => {
      parameter.value = value
    })
  }
  try {
    for (const [parameter, given] of withGradients(parameters, gradients)) {
      const decay = decayOf(parameter)
      if (decay === 0 && ArrayBuffer.isView(given)) {
        run(parameter, given)
        continue
      }
      const tensor = asTensor(given, parameter)
      const gradient = addDecay(tensor, decay, parameter.value)
      run(parameter, gradient)
      if (gradient !== tensor) gradient.dispose()
      tensor.dispose()
    }
  } finally {
    updates.finish()
  }
}

function asTensor(gradient: Gradient, { shape }: Parameter): Tensor {
  return ArrayBuffer.isView(gradient) ? tensorFrom(gradient, shape) : gradient
}
