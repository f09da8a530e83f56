import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom } from '../backend/host-memory.ts'
import type { EagerUpdates } from '../backend/tensorflow/eager-updates.ts'
import { tf } from '../backend/tfjs.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import { withGradients, type Gradients } from './optimizer.ts'

/** Makes the next value of a parameter out of operations; called in a tf.tidy. */
export type DeviceUpdate = (value: Tensor, gradient: Tensor, parameter: Parameter) => Tensor

/** `updateParameters` for backends whose tensors the host does not reach: nothing is fetched. */
export function updateOnDevice(
  parameters: readonly Parameter[],
  gradients: Gradients,
  update: DeviceUpdate,
): void {
  eachGradient(parameters, gradients, (parameter, gradient) => {
    const next = tf.tidy(() => tf.keep(update(parameter.value, gradient, parameter)))
    replaceValue(parameter, next)
  })
}

/** gradient + share value, a new tensor; the gradient itself where the share is 0. */
export function addDecay(gradient: Tensor, share: number, value: Tensor): Tensor {
  return share === 0 ? gradient : tf.tidy(() => tf.add(gradient, tf.mul(value, share)))
}

/** The update of a parameter on TensorFlow's CPU; it gives the parameter its value. */
export type UpdateInPlace = (
  parameter: Parameter,
  gradient: Tensor,
  store: (value: Tensor) => void,
) => void

/** `updateOnDevice` by what goes through memory once. */
export function updateInPlace(
  parameters: readonly Parameter[],
  gradients: Gradients,
  updates: EagerUpdates,
  update: UpdateInPlace,
): void {
  try {
    eachGradient(parameters, gradients, (parameter, gradient) => {
      update(parameter, gradient, (value) => {
        parameter.value = value
      })
    })
  } finally {
    updates.finish()
  }
}

/** Each gradient as a tensor, which is disposed after its use. */
function eachGradient(
  parameters: readonly Parameter[],
  gradients: Gradients,
  use: (parameter: Parameter, gradient: Tensor) => void,
): void {
  for (const [parameter, given] of withGradients(parameters, gradients)) {
    const gradient = ArrayBuffer.isView(given) ? tensorFrom(given, parameter.shape) : given
    use(parameter, gradient)
    gradient.dispose()
  }
}
