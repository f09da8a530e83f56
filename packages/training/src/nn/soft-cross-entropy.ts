import { argumentError, choice, declareOptions, where, type Rules } from '@tsrun/core'
import { currentBackend } from '../backend/current.ts'
import { valuesAtHand, viewOf } from '../backend/host-memory.ts'
import type { HostArray } from '../tfjs/host-arrays.ts'
import type { EvaluatedLoss } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import {
  checkLabels,
  checkShapes,
  differentiable,
  evaluateOnDevice,
  recordEvaluated,
  type Reduction,
} from './cross-entropy.ts'
import { answersOf, type Loss } from './loss.ts'

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
    differentiable((input) => evaluate(input, labels, options), logits)
  return Object.assign(loss, {
    reduction,
    record: (logits: Tensor, labels: Tensor) => recordEvaluated(evaluate(logits, labels, options)),
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

function evaluate(logits: Tensor, labels: Tensor, options: Complete): EvaluatedLoss {
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
