import { argumentError, choice, declareOptions, where, type Rules } from '@tsrun/core'
import { fusedPasses } from '../autograd/tape.ts'
import { valuesAtHand, viewOf } from '../backend/host-memory.ts'
import type { EvaluatedLoss, LabelTargets } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { answersOf, meanAndSum, type Loss, type Reduction } from './loss.ts'

const entropies = meanAndSum('crossEntropy', (logits, labels, reduction) =>
  evaluate(logits, labels, {
    reduction,
    ignoreIndex: undefined,
    labelSmoothing: 0,
    summedWeight: logits.shape[0] / labels.size,
  }),
)

/**
 * The mean cross-entropy between the softmax of logits and labels: -log p(label). The logits are float32
 * [batch, classes] or [..., classes], for example for each token of a text. The labels are int32 [batch]
 * or [...], each in [0, classes).
 *
 * Differentiable in the logits. The gradient, softmax - one-hot, is computed together with the loss.
 * The largest logit is subtracted before the exponential, so nothing overflows.
 *
 * Throws ERR_TSR_ARGUMENT when the shapes do not match, when a label is out of range, or when the
 * logits cover only this rank's part of the classes: see `vocabParallelCrossEntropy`.
 *
 * @example
 * const loss = crossEntropy(model.forward(x), labels)
 */
export const crossEntropy: Loss = entropies.mean

/**
 * The cross-entropy summed over the examples (the first axis) instead of averaged. The loss of one
 * example is the mean over its tokens.
 */
export const summedCrossEntropy: Loss = entropies.summed

/** @throws ERR_TSR_ARGUMENT for a label outside of [0, classes) */
export function checkLabels(labels: Int32Array, classes: number): void {
  const wrong = labels.find((label) => !(label >= 0 && label < classes))
  if (wrong === undefined) return
  throw argumentError('a label', wrong, `0 to ${classes - 1}`)
}

/**
 * Computes the loss and its gradient without reading values on the host.
 *
 * @param targets - [..., classes]
 * @param weights - the weights of the rows, a scalar or [..., 1]
 */
function evaluateOnDevice(logits: Tensor, targets: Tensor, weights: Tensor): [Tensor, Tensor] {
  const shifted = tf.sub(logits, tf.max(logits, -1, true))
  const exponentials = tf.exp(shifted)
  const totals = tf.sum(exponentials, -1, true)
  // Where the target is 0, skip the product: 0 times a logit of -Infinity is NaN.
  const own = tf.where(tf.greater(targets, 0), tf.mul(targets, shifted), tf.zerosLike(shifted))
  const losses = tf.sub(tf.log(totals), tf.sum(own, -1, true))
  const slopes = tf.sub(tf.div(exponentials, totals), targets)
  return [tf.sum(tf.mul(losses, weights)), tf.keep(tf.mul(slopes, weights))]
}

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

/** Data ids of logits that cover only some classes. Clones and reshaped tensors have the same ids. */
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
  /** The `mean` (default) or the `sum` over the labels that are not skipped. The mean of no labels is 0. */
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

/**
 * Returns a cross-entropy that skips some labels, or smooths them (Szegedy et al., 2015). With smoothing
 * s, the target of class k is (1 - s) [k = label] + s / classes. The loss is -sum target log p.
 *
 * The loss takes the arguments of `crossEntropy`. The mean is over the labels of the whole batch
 * that are not skipped, however micro-batches and ranks divide it. The accuracy skips the same labels.
 *
 * @throws ERR_TSR_ARGUMENT for invalid or unknown options
 *
 * @example
 * const loss = crossEntropyWith({ ignoreIndex: -100, labelSmoothing: 0.1 })
 */
export function crossEntropyWith(options: CrossEntropyOptions): Loss {
  const { reduction, ...targets } = readCrossEntropyOptions(options)
  const { ignoreIndex } = targets
  const { mean, summed } = meanAndSum(
    'crossEntropyWith(...)',
    (logits, labels, reduction) =>
      evaluate(logits, labels, { ...targets, reduction, summedWeight: 1 }),
    {
      count: (labels) => countLabels(labels, ignoreIndex),
      countCorrect: (logits, labels) => answersOf(logits, labels, ignoreIndex),
    },
  )
  return reduction === 'sum' ? summed : mean
}

/** Counts the labels that are not ignored. */
export async function countLabels(labels: Tensor, ignored: number | undefined): Promise<number> {
  if (ignored === undefined) return labels.size
  return withoutIgnored(await labels.data<'int32'>(), ignored).length
}

/** Returns the labels that are not ignored. */
export function withoutIgnored(labels: Int32Array, ignored: number | undefined): Int32Array {
  return ignored === undefined ? labels : labels.filter((label) => label !== ignored)
}

interface Evaluation extends LabelTargets {
  /** The reduction over the labels that are not ignored. */
  readonly reduction: Reduction
  /** The weight of each label with the reduction `sum`. */
  readonly summedWeight: number
}

/** Evaluates the loss. Labels that only the device holds are not checked. */
function evaluate(
  logits: Tensor,
  labels: Tensor,
  { reduction, summedWeight, ...targets }: Evaluation,
): EvaluatedLoss {
  const [rows, classes] = checkShapes(logits, labels)
  const { ignoreIndex, labelSmoothing } = targets
  const weightOf = (count: number) => (reduction === 'mean' ? 1 / Math.max(1, count) : summedWeight)
  const right = valuesAtHand(labels) as Int32Array | undefined
  if (right !== undefined) {
    const counting = withoutIgnored(right, ignoreIndex)
    checkLabels(counting, classes)
    const weight = weightOf(counting.length)
    const evaluate = fusedPasses().crossEntropy
    const evaluated = evaluate?.(logits, labels, weight, targets)
    if (evaluated !== undefined) return evaluated
  }
  const share = labelSmoothing / classes
  const targetsOf = (known: Tensor) =>
    tf.oneHot(known, classes, 1 - labelSmoothing + share, share, 'float32')
  const [value, gradient] = tf.tidy<[Tensor, Tensor]>(() => {
    if (ignoreIndex === undefined) {
      return evaluateOnDevice(logits, targetsOf(labels), tf.scalar(weightOf(rows)))
    }
    const isCounted = tf.notEqual(labels, tf.scalar(ignoreIndex, 'int32'))
    const counts = tf.cast(isCounted, 'float32')
    const weights =
      reduction === 'mean'
        ? tf.div(counts, tf.maximum(tf.sum(counts), 1))
        : tf.mul(counts, summedWeight)
    // Replace the logits of ignored rows: 0 times an infinite loss is NaN.
    const scores = tf.where(tf.expandDims(isCounted, -1), logits, tf.zerosLike(logits))
    const known = tf.where(isCounted, labels, tf.zerosLike(labels))
    return evaluateOnDevice(scores, targetsOf(known), tf.expandDims(weights, -1))
  })
  return { value, gradient }
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
