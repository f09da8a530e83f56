import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from '../model/parameter.ts'
import { checkOutputGradient } from './check-tensors.ts'
import type { GradientListener, Recording, RecordOptions } from '../model/recording.ts'
import { captureTape, disposeTape } from './tape.ts'
import { dependentNodes, walkBackward, walkInput, type HalvedPass } from './walk.ts'

/** `record`, without the preparations of the first use. */
export function recordOnTape(
  forward: (x: Tensor) => Tensor,
  x: Tensor,
  parameters: readonly Parameter[],
  { needsInputGradient }: RecordOptions,
): Recording {
  const { value, tape } = captureTape(() => forward(x))
  const wanted = new Map(parameters.map((parameter) => [parameter.value.id, parameter]))
  const sources = new Set(wanted.keys())
  if (needsInputGradient) sources.add(x.id)
  const { nodes, rest } = dependentNodes(tape, sources, value)
  disposeTape(rest)
  let spent = false
  let disposed = false
  let halved: HalvedPass | undefined
  return {
    value,
    backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
      if (spent || disposed) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
      checkOutputGradient(dy, value)
      spent = true
      return walkBackward(nodes, { value, dy, x, wanted, needsInputGradient, onGradient })
    },
    backwardInput(dy: Tensor): Tensor | undefined {
      if (spent || disposed) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
      checkOutputGradient(dy, value)
      spent = true
      halved = walkInput(nodes, { value, dy, x, wanted, needsInputGradient })
      return halved.inputGradient
    },
    backwardParameters(onGradient: GradientListener): void {
      if (halved === undefined) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
      const { finish, dispose } = halved
      halved = undefined
      try {
        finish(onGradient)
      } finally {
        dispose()
      }
    },
    dispose(): void {
      if (disposed) return
      disposed = true
      halved?.dispose()
      disposeTape(nodes)
      value.dispose()
    },
  }
}
