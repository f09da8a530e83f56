import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../autograd/recording.ts'
import { tf } from '../backend/tensorflow.ts'

/**
 * Collects gradients by parameter name, to sum them over micro-batches.
 *
 * @example
 * const gradients = new Map<string, Tensor>()
 * for (const { x, dy } of microbatches) recording(x).backward(dy, sumInto(gradients))
 * optimizer.step(model.parameters, gradients)
 */
export function sumInto(gradients: Map<string, Tensor>): GradientListener {
  return ({ name }, gradient) => {
    const sum = gradients.get(name)
    gradients.set(name, sum === undefined ? gradient : tf.keep(tf.add(sum, gradient)))
    if (sum === undefined) return
    sum.dispose()
    gradient.dispose()
  }
}
