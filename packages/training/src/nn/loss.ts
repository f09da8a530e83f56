import type { Tensor } from '@tensorflow/tfjs-core'
import { checkAlive } from '../autograd/check-tensors.ts'
import { record } from '../autograd/record.ts'
import type { Recording } from '../model/recording.ts'

/** What a model is judged by: a differentiable function of its outputs, a scalar. */
export interface Loss {
  (outputs: Tensor, labels: Tensor): Tensor

  /** The loss with its backward pass, where it has a faster one than the tape. */
  readonly record?: (outputs: Tensor, labels: Tensor) => Recording

  /** Whether it is the mean over the examples or their sum; a pipeline needs the sum. */
  readonly reduction?: 'mean' | 'sum'

  /** How many labels have the largest score, where the outputs are not the scores of all classes. */
  readonly countCorrect?: (outputs: Tensor, labels: Tensor) => number
}

/**
 * Records a loss: `backward` leads from the gradient of the loss, a scalar, to that of the outputs.
 *
 * @example
 * const loss = recordLoss(crossEntropy, outputs.value, labels)
 * const outputGradient = loss.backward(tf.scalar(1), () => undefined)
 */
export function recordLoss(loss: Loss, outputs: Tensor, labels: Tensor): Recording {
  checkAlive('outputs', outputs)
  checkAlive('labels', labels)
  return (
    loss.record?.(outputs, labels) ??
    record((x) => loss(x, labels), outputs, [], { needsInputGradient: true })
  )
}
