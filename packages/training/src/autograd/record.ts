import type { Tensor } from '@tensorflow/tfjs-core'
import { onHostBackend } from '../backend/current.ts'
import { registerGradients } from '../tfjs/tfjs.ts'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { checkAlive } from './check-tensors.ts'
import type { Recording, RecordOptions } from '../model/recording.ts'
import { testTape } from './self-test.ts'
import { recordOnTape } from './tape-recording.ts'

/**
 * Runs `forward(x)` on TensorFlow.js' tape and keeps what its backward pass needs.
 *
 * The first call loads TensorFlow.js' gradients and checks that its tape works as expected.
 *
 * @param parameters - those whose gradients are wanted, with the values that `forward` reads
 * @throws ERR_TSR_NESTED_RECORDING inside another recording or tf.grads
 * @throws ERR_TSR_AUTOGRAD when this version of TensorFlow.js has another tape
 */
export function record(
  forward: (x: Tensor) => Tensor,
  x: Tensor,
  parameters: readonly Parameter[],
  options: RecordOptions,
): Recording {
  prepareTape()
  return recordOnTape(forward, x, parameters, options)
}

/**
 * Records `module.forward(x)`: by the module's own passes where it has them, else on the tape.
 *
 * @throws as `record`; ERR_TSR_BACKEND where ranks share the module and the backend cannot wait for
 *   them inside a pass: see `recordSegments`
 */
export function recordModule(module: Module, x: Tensor, options: RecordOptions): Recording {
  checkAlive('x', x)
  return (
    module.record?.(x, options) ??
    record((input) => module.forward(input), x, module.parameters, options)
  )
}

let prepared = false

/** Once, before the first tape: a process that never needs it does not wait for it. */
function prepareTape(): void {
  if (prepared) return
  registerGradients()
  onHostBackend(() => {
    testTape()
  })
  prepared = true
}
