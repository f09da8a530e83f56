import type { Tensor } from '@tensorflow/tfjs-core'
import { record } from '../autograd/record.ts'
import { isHostAccessible } from '../backend/current.ts'
import { takeScalar, viewOf } from '../backend/host-memory.ts'
import { checkAlive, type Recording } from '../model/recording.ts'
import { tf } from '../tfjs/tfjs.ts'

type Maybe<T> = T | Promise<T>

/** The number of correct answers, and of all answers. */
export interface Answers {
  readonly correct: number
  readonly of: number
}

/**
 * A differentiable function of the outputs of a model and the labels that returns a scalar. Optional
 * properties describe it:
 */
export interface Loss {
  (outputs: Tensor, labels: Tensor): Tensor

  /** Records the loss without the tape, if there is a faster way. */
  readonly record?: (outputs: Tensor, labels: Tensor) => Recording

  /**
   * Whether the loss is a mean or a sum. If undefined, it is determined on the first examples whose loss
   * is not 0.
   */
  readonly reduction?: 'mean' | 'sum'

  /**
   * Returns the denominator of the mean, for losses in which not every example counts once (padding,
   * masks, weights). Depends only on the labels; may be a fraction, or 0. Default: the number of
   * examples.
   */
  readonly count?: (labels: Tensor) => Maybe<number>

  /** The same loss as a sum, if this one is a mean. */
  readonly summed?: Loss

  /**
   * Counts the correct answers, for outputs that are not the scores of all classes. A plain number
   * refers to all labels.
   */
  readonly countCorrect?: (outputs: Tensor, labels: Tensor) => Maybe<number | Answers>
}

/**
 * Makes a custom loss with its own denominator. Losses are summed over all parts of a batch, on all
 * ranks, before the division, so that micro-batches, accumulation and replicas do not change the result.
 *
 * @param sum - the sum of the losses that count
 * @param tags - `count` returns the denominator; `countCorrect` counts for the accuracy
 *
 * @example
 * // labels [batch, 2]: targets and weights
 * const weighted = lossOf(
 *   (y, labels) => {
 *     const [target, weight] = tf.split(labels, 2, -1)
 *     return tf.sum(tf.mul(tf.squaredDifference(y, target), weight))
 *   },
 *   { count: (labels) => labels.dataSync<'float32'>().reduce((n, w, i) => (i % 2 ? n + w : n), 0) },
 * )
 */
export function lossOf(
  sum: (outputs: Tensor, labels: Tensor) => Tensor,
  tags: Pick<Loss, 'count' | 'countCorrect'> = {},
): Loss {
  return Object.assign((outputs: Tensor, labels: Tensor) => sum(outputs, labels), {
    reduction: 'sum' as const,
    ...tags,
  })
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

/**
 * Counts the rows whose largest logit is the label's. Of equal logits, the first counts as the largest.
 *
 * @param logits - [..., classes] float32
 * @param labels - [...] int32
 */
export function countCorrect(logits: Tensor, labels: Tensor): number {
  return answersAtHand(logits, labels, undefined).correct
}

/** Like `countCorrect`, on every backend. Skips labels that are not a class or are `ignored`. */
export function answersOf(logits: Tensor, labels: Tensor, ignored?: number): Maybe<Answers> {
  return isHostAccessible()
    ? answersAtHand(logits, labels, ignored)
    : fetchAnswers(logits, labels, ignored)
}

function answersAtHand(logits: Tensor, labels: Tensor, ignored: number | undefined): Answers {
  const classes = logits.shape.at(-1)!
  const right = labels.dataSync<'int32'>()
  const values = viewOf(logits)
  let [correct, of] = [0, 0]
  right.forEach((label, row) => {
    if (label === ignored || label < 0 || label >= classes) return
    const scores = values.subarray(row * classes, (row + 1) * classes)
    let best = 0
    for (let k = 1; k < classes; k++) if (scores[k]! > scores[best]!) best = k
    of++
    if (best === label) correct++
  })
  return { correct, of }
}

async function fetchAnswers(
  logits: Tensor,
  labels: Tensor,
  ignored: number | undefined,
): Promise<Answers> {
  const classes = logits.shape.at(-1)!
  const [right, counting] = tf.tidy<[Tensor, Tensor]>(() => {
    const isClass = tf.logicalAnd(tf.greaterEqual(labels, 0), tf.less(labels, classes))
    const counts =
      ignored === undefined ? isClass : tf.logicalAnd(isClass, tf.notEqual(labels, ignored))
    const isRight = tf.logicalAnd(tf.equal(tf.argMax(logits, -1), labels), counts)
    const sumOf = (each: Tensor): Tensor => tf.sum(tf.cast(each, 'int32'))
    return [sumOf(isRight), sumOf(counts)]
  })
  const [correct, of] = await Promise.all([takeScalar(right), takeScalar(counting)])
  return { correct, of }
}
