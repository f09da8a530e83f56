import type { Tensor } from '@tensorflow/tfjs-core'
import { addInPlace, sumOf } from '../backend/arithmetic.ts'
import type { GradientListener } from '../model/recording.ts'

/**
 * Returns a gradient listener that sums gradients by parameter name, for example over micro-batches.
 *
 * @example
 * const gradients = new Map<string, Tensor>()
 * for (const { x, dy } of microbatches) recording(x).backward(dy, sumInto(gradients))
 * optimizer.step(model.parameters, gradients)
 */
export function sumInto(gradients: Map<string, Tensor>): GradientListener {
  const listener: GradientListener = ({ name }, gradient) => {
    const sum = gradients.get(name)
    if (sum === undefined) gradients.set(name, gradient)
    else if (addInPlace(sum, gradient)) gradient.dispose()
    else {
      gradients.set(name, sumOf(sum, gradient))
      sum.dispose()
      gradient.dispose()
    }
  }
  return Object.assign(listener, { sums: gradients })
}
