import type { Tensor } from '@tensorflow/tfjs-core'
import { record } from '../autograd/record.ts'
import { isHostAccessible } from '../backend/current.ts'
import { takeScalar, viewOf } from '../backend/host-memory.ts'
import { checkAlive, type Recording } from '../model/recording.ts'
import { tf } from '../tfjs/tfjs.ts'

/** A differentiable function of the outputs of a model and the labels; its result is a scalar. */
export interface Loss {
  (outputs: Tensor, labels: Tensor): Tensor

  /** Records the loss without the tape, if there is a faster way. */
  readonly record?: (outputs: Tensor, labels: Tensor) => Recording

  /** Whether the loss is the mean over the examples or their sum. A pipeline needs the sum. */
  readonly reduction?: 'mean' | 'sum'

  /** The same loss as the sum over the examples, if this one is their mean. */
  readonly summed?: Loss

  /** Counts the right answers, if the outputs are not the scores of all classes. */
  readonly countCorrect?: (outputs: Tensor, labels: Tensor) => number | Promise<number>
}

/**
 * Records a loss. Its `backward` takes the gradient of the loss, a scalar, and returns the gradient of
 * the outputs.
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

/** The loss of outputs and the number of right answers. */
export interface Score {
  readonly loss: number
  /** A row with several answers, such as one for each token of a text, counts as a fraction. */
  readonly correct: number
}

/**
 * Computes the loss and counts the right answers. Both tensors stay the caller's.
 *
 * @returns `correct` is NaN unless the labels are those of classes, or the loss counts them
 */
export async function scoreOf(loss: Loss, outputs: Tensor, labels: Tensor): Promise<Score> {
  const hasClasses = labels.dtype === 'int32' && outputs.rank === labels.rank + 1
  const count = loss.countCorrect ?? (hasClasses ? fetchCorrect : () => NaN)
  const value = takeScalar(tf.tidy(() => loss(outputs, labels)))
  const correct = count(outputs, labels)
  const answers = labels.size / labels.shape[0]
  return { loss: await value, correct: (await correct) / answers }
}

/**
 * Counts the rows whose largest logit is that of the label. Of equal logits the first one counts.
 *
 * @param logits - [..., classes] float32
 * @param labels - [...] int32
 */
export function countCorrect(logits: Tensor, labels: Tensor): number {
  const classes = logits.shape.at(-1)!
  const right = labels.dataSync<'int32'>()
  const values = viewOf(logits)
  return right.reduce((correct, label, row) => {
    const scores = values.subarray(row * classes, (row + 1) * classes)
    let best = 0
    for (let k = 1; k < classes; k++) if (scores[k]! > scores[best]!) best = k
    return best === label ? correct + 1 : correct
  }, 0)
}

/** As `countCorrect`, on every backend: a promise if the count has to be fetched from a device. */
function fetchCorrect(logits: Tensor, labels: Tensor): number | Promise<number> {
  if (isHostAccessible()) return countCorrect(logits, labels)
  const correct = tf.tidy(() => tf.sum(tf.cast(tf.equal(tf.argMax(logits, -1), labels), 'int32')))
  return takeScalar(correct)
}
