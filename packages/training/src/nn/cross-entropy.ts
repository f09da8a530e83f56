import { argumentError } from '@tsrun/core'
import { checkedRecording, type Recording } from '../model/recording.ts'
import { currentBackend, repeated } from '../backend/current.ts'
import { valuesAtHand } from '../backend/host-memory.ts'
import type { EvaluatedLoss } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

/**
 * Whether to average or to sum the losses of the examples. The loss of one example is the mean over
 * its tokens.
 */
export type Reduction = 'mean' | 'sum'

/**
 * The cross-entropy between the softmax of `logits` and the labels: -log p(label).
 *
 * Differentiable in `logits`. The gradient, softmax - one-hot, is computed together with the loss.
 * The largest logit is subtracted before the exponential, so nothing overflows.
 *
 * @param logits - [batch, classes] float32; or [..., classes], for example for each token of a text
 * @param labels - [batch] int32, or [...], each in [0, classes)
 * @param reduction - `mean` over the batch (default), or `sum`. The sums over all micro-batches
 *   divided by the batch size are the mean over the batch.
 * @returns a scalar
 * @throws ERR_TSR_ARGUMENT when the shapes do not match, when a label is out of range, or when the
 *   logits cover only this rank's part of the classes: see `vocabParallelCrossEntropy`
 *
 * @example
 * const loss = crossEntropy(model.forward(x), labels)
 */
export function crossEntropy(
  logits: Tensor,
  labels: Tensor,
  reduction: Reduction = 'mean',
): Tensor {
  return differentiable((input) => evaluate(input, labels, reduction), logits)
}

/** Makes a loss a differentiable operation whose gradient is computed together with its value. */
export function differentiable(
  evaluateLoss: (outputs: Tensor) => EvaluatedLoss,
  outputs: Tensor,
): Tensor {
  const loss = tf.customGrad((input, save) => {
    const { value, gradient } = evaluateLoss(input as Tensor)
    ;(save as (tensors: Tensor[]) => void)([gradient])
    gradient.dispose()
    return { value, gradFunc: (dy: Tensor, saved: Tensor[]) => tf.mul(saved[0]!, dy) }
  })
  return loss(outputs)
}
crossEntropy.reduction = 'mean' as const
crossEntropy.record = (logits: Tensor, labels: Tensor) =>
  recordEvaluated(evaluate(logits, labels, 'mean'))

/**
 * The cross-entropy summed over the examples (the first axis) instead of averaged. A pipeline adds
 * these sums over micro-batches.
 */
export function summedCrossEntropy(logits: Tensor, labels: Tensor): Tensor {
  return crossEntropy(logits, labels, 'sum')
}
summedCrossEntropy.reduction = 'sum' as const
crossEntropy.summed = summedCrossEntropy
summedCrossEntropy.record = (logits: Tensor, labels: Tensor) =>
  recordEvaluated(evaluate(logits, labels, 'sum'))

/** Returns a recording of a loss whose gradient is already computed, so that it needs no tape. */
export function recordEvaluated({ value, gradient }: EvaluatedLoss): Recording {
  const backward = (dy: Tensor) =>
    repeated('loss gradient', [gradient, dy], () => [tf.mul(gradient, dy)])[0]!
  return checkedRecording(tf.keep(value), {
    backward,
    backwardInput: backward,
    backwardParameters: () => undefined,
    dispose() {
      tf.dispose([value, gradient])
    },
  })
}

function evaluate(logits: Tensor, labels: Tensor, reduction: Reduction): EvaluatedLoss {
  const [rows, classes] = checkShapes(logits, labels)
  const right = valuesAtHand(labels) as Int32Array | undefined
  if (right !== undefined) checkLabels(right, classes)
  const weight = (reduction === 'mean' ? 1 : logits.shape[0]) / rows
  return (
    currentBackend().crossEntropy?.(logits, labels, weight, plain) ??
    evaluateOnDevice(() => {
      return [logits, tf.oneHot(labels, classes, 1, 0, 'float32'), tf.scalar(weight)]
    })
  )
}

const plain = { ignoreIndex: undefined, labelSmoothing: 0 } as const

/** @throws ERR_TSR_ARGUMENT for a label outside of [0, classes) */
export function checkLabels(labels: Int32Array, classes: number): void {
  const wrong = labels.find((label) => !(label >= 0 && label < classes))
  if (wrong === undefined) return
  throw argumentError('a label', wrong, `0 to ${classes - 1}`)
}

/**
 * Computes the loss without fetching values. Labels that only the device holds are not checked.
 *
 * @param make - returns the logits and the targets, both [..., classes], and the weights of the rows, a
 *   scalar or [..., 1]
 */
export function evaluateOnDevice(
  make: () => readonly [logits: Tensor, targets: Tensor, weights: Tensor],
): EvaluatedLoss {
  const [value, gradient] = tf.tidy<[Tensor, Tensor]>(() => {
    const [logits, targets, weights] = make()
    const shifted = tf.sub(logits, tf.max(logits, -1, true))
    const exponentials = tf.exp(shifted)
    const totals = tf.sum(exponentials, -1, true)
    // Where the target is 0, skip the product: 0 times a logit of -Infinity is NaN.
    const own = tf.where(tf.greater(targets, 0), tf.mul(targets, shifted), tf.zerosLike(shifted))
    const losses = tf.sub(tf.log(totals), tf.sum(own, -1, true))
    const slopes = tf.sub(tf.div(exponentials, totals), targets)
    return [tf.sum(tf.mul(losses, weights)), tf.keep(tf.mul(slopes, weights))]
  })
  return { value, gradient }
}

/**
 * @throws ERR_TSR_ARGUMENT unless there is one int32 label for each row of logits, and the logits
 *   cover all classes. For logits of only some classes, the loss would be wrong.
 */
export function checkShapes(logits: Tensor, labels: Tensor): [rows: number, classes: number] {
  if (isPartial(logits)) {
    throw argumentError(
      'crossEntropy(logits, labels)',
      `[${logits.shape.join(', ')}], the scores of this rank's part of the classes`,
      "the scores of all classes: use vocabParallelCrossEntropy(group), or gather: 'replicated' in the plan of the layer",
    )
  }
  if (labels.dtype !== 'int32') {
    throw argumentError(
      'the dtype of the labels of crossEntropy',
      labels.dtype,
      "int32, the numbers of the classes: tf.cast(labels, 'int32'), or argMax of one-hot rows",
    )
  }
  const rows = labels.size
  const fits = logits.rank >= 2 && labels.shape.join() === logits.shape.slice(0, -1).join()
  if (!fits || rows === 0) {
    throw argumentError(
      'crossEntropy(logits, labels)',
      `[${logits.shape.join(', ')}], ${labels.dtype} [${labels.shape.join(', ')}]`,
      '[batch, classes] and int32 [batch], or [..., classes] and int32 [...]',
    )
  }
  return [rows, logits.shape.at(-1)!]
}

/**
 * Data ids of logits that cover only some classes. A script may pass clones or reshaped tensors,
 * which have the same data id as the layer's output.
 */
const partialScores = new WeakSet<object>()

/** Marks the output of a layer whose last axis is split among ranks. */
export function markPartial(scores: Tensor): Tensor {
  partialScores.add(scores.dataId)
  return scores
}

/** Whether the last axis is split among ranks. */
export function isPartial(scores: Tensor): boolean {
  return partialScores.has(scores.dataId)
}
