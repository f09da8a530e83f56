import type { Tensor, Tensor1D, Tensor2D } from '@tensorflow/tfjs-core'
import { tf } from '../backend/tensorflow.ts'

/** Whether a loss is averaged over its examples or summed. */
export type Reduction = 'mean' | 'sum'

/**
 * Cross-entropy of the softmax of `logits` with the right classes: -log p(label).
 *
 * The gradient is written out, softmax - one-hot: nothing overflows, however large the logits.
 *
 * @param logits - [batch, classes] float32
 * @param labels - [batch] int32, each in [0, classes)
 * @param reduction - `mean` over the batch (default), or `sum`: micro-batches of unequal sizes add up
 *   to the mean of the whole batch when their sums are divided by its size
 * @returns a scalar
 */
export function crossEntropy(
  logits: Tensor,
  labels: Tensor,
  reduction: Reduction = 'mean',
): Tensor {
  const scale = reduction === 'mean' ? 1 / logits.shape[0]! : 1
  const loss = tf.customGrad((input, save) => {
    const x = input as Tensor2D
    const classes = x.shape[1]
    const target = tf.cast(tf.oneHot(labels as Tensor1D, classes), 'float32')
    const logProbabilities = tf.logSoftmax(x)
    const value = tf.mul(tf.sum(tf.mul(logProbabilities, target)), -scale)
    ;(save as (tensors: Tensor[]) => void)([tf.sub(tf.exp(logProbabilities), target)])
    return {
      value,
      gradFunc: (dy: Tensor, saved: Tensor[]) => tf.mul(saved[0]!, tf.mul(dy, scale)),
    }
  })
  return loss(logits)
}
