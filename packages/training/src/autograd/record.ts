import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { registerGradients } from '../backend/tensorflow.ts'
import type { Module } from '../nn/module.ts'
import type { Parameter } from '../nn/parameter.ts'
import type { GradientListener, Recording, RecordOptions } from './recording.ts'
import { captureTape, disposeTape } from './tape.ts'
import { dependentNodes, walkBackward } from './walk.ts'

/**
 * Runs `forward(x)` on TensorFlow.js' tape and keeps what its backward pass needs.
 *
 * @param parameters - those whose gradients are wanted, with the values that `forward` reads
 * @throws ERR_TSR_NESTED_RECORDING inside another recording or tf.grads
 */
export function record(
  forward: (x: Tensor) => Tensor,
  x: Tensor,
  parameters: readonly Parameter[],
  { needsInputGradient }: RecordOptions,
): Recording {
  registerGradients()
  const { value, tape } = captureTape(() => forward(x))
  const wanted = new Map(parameters.map((parameter) => [parameter.value.id, parameter]))
  const sources = new Set(wanted.keys())
  if (needsInputGradient) sources.add(x.id)
  const { nodes, rest } = dependentNodes(tape, sources, value)
  disposeTape(rest)
  let spent = false
  let disposed = false
  return {
    value,
    backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
      if (spent || disposed) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
      spent = true
      return walkBackward(nodes, { value, dy, x, wanted, needsInputGradient, onGradient })
    },
    dispose(): void {
      if (disposed) return
      disposed = true
      disposeTape(nodes)
      value.dispose()
    },
  }
}

/** Records `module.forward(x)`: by the module's own passes where it has them, else on the tape. */
export function recordModule(module: Module, x: Tensor, options: RecordOptions): Recording {
  return (
    module.record?.(x, options) ??
    record((input) => module.forward(input), x, module.parameters, options)
  )
}
