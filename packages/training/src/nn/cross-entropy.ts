import { argumentError, choice, declareOptions, where, type Rules } from '@tsrun/core'
import { checkedRecording, type Recording } from '../model/recording.ts'
import { currentBackend, repeated } from '../backend/current.ts'
import { shared } from '../backend/held-values.ts'
import { valuesAtHand, viewOf } from '../backend/host-memory.ts'
import type { EvaluatedLoss, LabelTargets } from '../tfjs/backend.ts'
import type { HostArray } from '../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { answersOf, type Loss } from './loss.ts'

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

const plain: LabelTargets = { ignoreIndex: undefined, labelSmoothing: 0 }

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
function evaluateOnDevice(
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
function checkShapes(logits: Tensor, labels: Tensor): [rows: number, classes: number] {
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

/** Options of `crossEntropyWith`. */
export interface CrossEntropyOptions {
  /** A label to skip, for example for padding. Skipped labels add nothing to the loss. */
  readonly ignoreIndex?: number
  /** The fraction of each target that is spread evenly over all classes, from 0 (default) to 1. */
  readonly labelSmoothing?: number
  /** The `mean` (default) or the `sum` over the labels that count. Without such labels, the mean is 0. */
  readonly reduction?: Reduction
}

export const readCrossEntropyOptions = declareOptions({
  ignoreIndex: where<number>((value) => Number.isInteger(value), 'a whole number').optional(),
  labelSmoothing: where<number>(
    (value) => typeof value === 'number' && value >= 0 && value <= 1,
    'from 0 to 1',
  ).default(0),
  reduction: choice('mean', 'sum').default('mean'),
} satisfies Rules<CrossEntropyOptions>)

type Complete = ReturnType<typeof readCrossEntropyOptions>

/**
 * Returns a cross-entropy that skips some labels, or smooths them (Szegedy et al., 2015). With smoothing
 * s, the target of class k is (1 - s) [k = label] + s / classes. The loss is -sum target log p.
 *
 * The loss takes the arguments of `crossEntropy`. Micro-batches on any number of ranks together give the
 * mean over all labels of the batch that count. The accuracy skips the same labels.
 *
 * @throws ERR_TSR_ARGUMENT for invalid or unknown options
 *
 * @example
 * const loss = crossEntropyWith({ ignoreIndex: -100, labelSmoothing: 0.1 })
 */
export function crossEntropyWith(options: CrossEntropyOptions): Loss {
  const complete = readCrossEntropyOptions(options)
  const summed = lossWith({ ...complete, reduction: 'sum' })
  return complete.reduction === 'sum' ? summed : Object.assign(lossWith(complete), { summed })
}

function lossWith(options: Complete): Loss {
  const { ignoreIndex, reduction } = options
  const loss = (logits: Tensor, labels: Tensor) =>
    differentiable((input) => evaluateWith(input, labels, options), logits)
  return Object.assign(loss, {
    reduction,
    record: (logits: Tensor, labels: Tensor) =>
      recordEvaluated(evaluateWith(logits, labels, options)),
    count: (labels: Tensor) => countLabels(labels, ignoreIndex),
    countCorrect: (logits: Tensor, labels: Tensor) => answersOf(logits, labels, ignoreIndex),
  })
}

/** Counts the labels that are not ignored. */
export function countLabels(labels: Tensor, ignored: number | undefined): number | Promise<number> {
  if (ignored === undefined) return labels.size
  const count = (values: HostArray) =>
    (values as Int32Array).reduce((n, label) => (label === ignored ? n : n + 1), 0)
  const values = valuesAtHand(labels)
  return values === undefined ? labels.data<'int32'>().then(count) : count(values)
}

function evaluateWith(logits: Tensor, labels: Tensor, options: Complete): EvaluatedLoss {
  const [, classes] = checkShapes(logits, labels)
  const { ignoreIndex, labelSmoothing, reduction } = options
  const right = valuesAtHand(labels) as Int32Array | undefined
  if (right !== undefined) {
    const counting = right.filter((label) => label !== ignoreIndex)
    checkLabels(counting, classes)
    const weight = reduction === 'mean' ? 1 / Math.max(1, counting.length) : 1
    const evaluated = currentBackend().crossEntropy?.(logits, labels, weight, options)
    if (evaluated !== undefined) return evaluated
  }
  return evaluateOnDevice(() => {
    const isCounted = tf.notEqual(labels, tf.scalar(ignoreIndex ?? -1, 'int32'))
    const counts = tf.cast(isCounted, 'float32')
    // Replace the logits of ignored rows: 0 times an infinite loss is NaN.
    const scores = tf.where(tf.expandDims(isCounted, -1), logits, tf.zerosLike(logits))
    const weights = reduction === 'mean' ? tf.div(counts, tf.maximum(tf.sum(counts), 1)) : counts
    const known = tf.cast(tf.mul(tf.cast(labels, 'float32'), counts), 'int32')
    const right = tf.oneHot(known, classes, 1, 0, 'float32')
    const targets = tf.add(tf.mul(right, 1 - labelSmoothing), labelSmoothing / classes)
    return [scores, targets, tf.expandDims(weights, -1)]
  })
}

/** Returns exp of the mean cross-entropy per token: the equivalent number of equally likely tokens. */
export function perplexity(loss: number): number {
  return Math.exp(loss)
}

/**
 * Counts the rows whose label is among the `k` largest logits. Logits equal to the label's do not
 * count as larger. Rows whose label is not a class, or has the logit NaN, do not count. Reads values
 * synchronously, so it does not work on webgpu.
 *
 * @param logits - [..., classes] float32
 * @param labels - [...] int32
 * @throws ERR_TSR_ARGUMENT for shapes and dtypes that do not fit
 */
export function countTopK(logits: Tensor, labels: Tensor, k: number): number {
  const [, classes] = checkShapes(logits, labels)
  if (!Number.isInteger(k) || k < 1) {
    throw argumentError('k', k, 'a whole number from 1')
  }
  const right = labels.dataSync<'int32'>()
  const scores = viewOf(logits)
  return right.reduce((count, label, row) => {
    if (label < 0 || label >= classes) return count
    const own = scores[row * classes + label]!
    let larger = 0
    for (let i = row * classes; i < (row + 1) * classes; i++) if (scores[i]! > own) larger++
    return larger < k && !Number.isNaN(own) ? count + 1 : count
  }, 0)
}
