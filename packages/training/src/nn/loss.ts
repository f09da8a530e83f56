import { argumentError, shown } from '@tsrun/core'
import { record } from '../autograd/record.ts'
import { currentBackend, repeated } from '../backend/current.ts'
import { shared } from '../backend/held-values.ts'
import { takeScalar } from '../backend/host-memory.ts'
import { checkAlive, checkedRecording, type Recording } from '../model/recording.ts'
import type { EvaluatedLoss } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

export type Maybe<T> = T | Promise<T>

/** Whether to average or to sum the losses of the examples. */
export type Reduction = 'mean' | 'sum'

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

  /** Records the loss without the tape. Present if the loss has a faster implementation. */
  readonly record?: (outputs: Tensor, labels: Tensor) => Recording

  /**
   * Whether the loss is a mean or a sum. If undefined, a trial with the first examples whose loss is not
   * 0 determines it.
   */
  readonly reduction?: Reduction

  /**
   * Returns the denominator of the mean, for losses that do not count every example once (padding,
   * masks, weights). The result must depend only on the labels. The denominator may be a fraction,
   * or 0. Default: the number of examples.
   */
  readonly count?: (labels: Tensor) => Maybe<number>

  /** The same loss as a sum, if this loss is a mean. */
  readonly summed?: Loss

  /**
   * Counts the correct answers. Needed if the outputs are not the logits of all classes. If the result is
   * a number, all labels count as answers.
   */
  readonly countCorrect?: (outputs: Tensor, labels: Tensor) => Maybe<number | Answers>
}

/**
 * Makes a custom loss with its own denominator. The losses of all parts of a batch on all ranks are
 * summed before the division. So micro-batches, accumulation and replicas do not change the result.
 *
 * @param sum - returns the sum of the losses, without ignored ones
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
 * Makes a loss as a mean and as a sum, from a function that computes value and gradient together.
 *
 * @param name - the name of the mean, for error messages
 */
export function meanAndSum(
  name: string,
  evaluate: (outputs: Tensor, labels: Tensor, reduction: Reduction) => EvaluatedLoss,
  tags: Pick<Loss, 'count' | 'countCorrect'> = {},
): Record<'mean' | 'summed', Loss> {
  const lossOn = (reduction: Reduction) => {
    const loss = (outputs: Tensor, labels: Tensor, other?: unknown) => {
      if (other !== undefined) {
        const sum = `${name}.summed for the sum`
        throw argumentError(`the third argument of ${name}`, shown(other), `none; call ${sum}`)
      }
      const differentiable = tf.customGrad((input, save) => {
        const { value, gradient } = evaluate(input as Tensor, labels, reduction)
        ;(save as (tensors: Tensor[]) => void)([gradient])
        gradient.dispose()
        return { value, gradFunc: (dy: Tensor, saved: Tensor[]) => tf.mul(saved[0]!, dy) }
      })
      return differentiable(outputs)
    }
    const record = (outputs: Tensor, labels: Tensor) =>
      recordEvaluated(evaluate(outputs, labels, reduction))
    return Object.assign(loss, { reduction, record, ...tags })
  }
  const summed = Object.defineProperty(lossOn('sum'), 'name', { value: `${name}.summed` })
  const mean = Object.defineProperty(lossOn('mean'), 'name', { value: name })
  return { summed, mean: Object.assign(mean, { summed }) }
}

/** Returns a recording of a loss whose gradient is already computed, so that it needs no tape. */
export function recordEvaluated({ value, gradient }: EvaluatedLoss): Recording {
  const backward = (dy: Tensor) => {
    const { scale, view } = currentBackend()
    if (scale !== undefined && view !== undefined) return scale(shared(gradient), view(dy)[0]!)
    return repeated('loss gradient', [gradient, dy], () => [tf.mul(gradient, dy)])[0]!
  }
  return checkedRecording(tf.keep(value), {
    backward,
    backwardInput: backward,
    backwardParameters: () => undefined,
    dispose() {
      tf.dispose([value, gradient])
    },
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
 * Counts the rows in which the label has the largest logit. If several logits are the largest, only the
 * first one counts.
 *
 * @param logits - [..., classes] float32
 * @param labels - [...] int32
 */
export function countCorrect(logits: Tensor, labels: Tensor): number {
  return tf.tidy(() => countAnswers(logits, labels)[0].dataSync<'int32'>()[0]!)
}

/** Like `countCorrect`, on every backend. Skips labels that are not a class or equal `ignored`. */
export async function answersOf(
  logits: Tensor,
  labels: Tensor,
  ignored?: number,
): Promise<Answers> {
  const [right, counting] = tf.tidy(() => countAnswers(logits, labels, ignored))
  const [correct, of] = await Promise.all([takeScalar(right), takeScalar(counting)])
  return { correct, of }
}

function countAnswers(
  logits: Tensor,
  labels: Tensor,
  ignored?: number,
): [correct: Tensor, of: Tensor] {
  const classes = logits.shape.at(-1)!
  const isClass = tf.logicalAnd(tf.greaterEqual(labels, 0), tf.less(labels, classes))
  const counts =
    ignored === undefined ? isClass : tf.logicalAnd(isClass, tf.notEqual(labels, ignored))
  const found = tf.reshape(tf.argMax(logits, -1), labels.shape)
  const isRight = tf.logicalAnd(tf.equal(found, labels), counts)
  const sumOf = (each: Tensor) => tf.sum(tf.cast(each, 'int32'))
  return [sumOf(isRight), sumOf(counts)]
}
