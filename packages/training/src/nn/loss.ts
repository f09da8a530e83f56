import { record } from '../autograd/record.ts'
import { isHostAccessible } from '../backend/current.ts'
import { takeScalar, viewOf } from '../backend/host-memory.ts'
import { checkAlive, type Recording } from '../model/recording.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

export type Maybe<T> = T | Promise<T>

/** The number of correct answers, and the number of all answers. */
export interface Answers {
  readonly correct: number
  readonly of: number
}

/**
 * A differentiable function that maps the outputs of a model and the labels to a scalar. Optional
 * properties describe the function.
 */
export interface Loss {
  (outputs: Tensor, labels: Tensor): Tensor

  /** Records the loss without the tape, for losses with a faster way. */
  readonly record?: (outputs: Tensor, labels: Tensor) => Recording

  /**
   * Whether the loss is a mean or a sum. If undefined, the first examples with a loss other than 0
   * determine the answer.
   */
  readonly reduction?: 'mean' | 'sum'

  /**
   * Returns the denominator of the mean, for losses that do not count every example once (padding,
   * masks, weights). The result must depend only on the labels. It may be a fraction, or 0.
   * Default: the number of examples.
   */
  readonly count?: (labels: Tensor) => Maybe<number>

  /** If this loss is a mean: the same loss as a sum. */
  readonly summed?: Loss

  /**
   * Counts the correct answers, for outputs that are not the logits of all classes. If the result
   * is a number, all labels count as answers.
   */
  readonly countCorrect?: (outputs: Tensor, labels: Tensor) => Maybe<number | Answers>
}

/**
 * Makes a custom loss with its own denominator. The losses of all parts of a batch on all ranks are
 * summed before the division. So micro-batches, accumulation and replicas do not change the result.
 *
 * @param sum - returns the sum of the losses that count
 * @param tags - `count` returns the denominator; `countCorrect` counts correct answers for the
 *   accuracy
 *
 * @example
 * // labels [batch, 2]: targets and weights
 * const weighted = lossOf(
 *   (y, labels) => {
 *     const [target, weight] = tf.split(labels, 2, -1)
 *     return tf.sum(tf.mul(tf.squaredDifference(y, target), weight))
 *   },
 *   { count: (labels) => labels.dataSync<'float32'>().reduce((n, w, i) => (i % 2 ? n + w : n), 0)
 *   },
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
 * Records a loss. The `backward` of the recording takes the gradient of the loss, a scalar, and
 * returns the gradient of the outputs.
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
 * Counts the rows whose largest logit is that of the label. Of equal logits, the first counts as
 * the largest.
 *
 * @param logits - [..., classes] float32
 * @param labels - [...] int32
 */
export function countCorrect(logits: Tensor, labels: Tensor): number {
  return answersAtHand(logits, labels, undefined).correct
}

/**
 * Like `countCorrect`, but works on every backend. Skips labels that are out of range or equal to
 * `ignored`.
 */
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
    const sumOf = (each: Tensor) => tf.sum(tf.cast(each, 'int32'))
    return [sumOf(isRight), sumOf(counts)]
  })
  const [correct, of] = await Promise.all([takeScalar(right), takeScalar(counting)])
  return { correct, of }
}
