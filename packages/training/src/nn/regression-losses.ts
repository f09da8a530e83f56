import { argumentError } from '@tsrun/core'
import { takeScalar } from '../backend/host-memory.ts'
import type { EvaluatedLoss } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { differentiable, recordEvaluated, type Reduction } from './cross-entropy.ts'

/** A loss that is computed value by value, from outputs and targets of equal shapes. */
interface Terms {
  readonly name: string
  /** Returns the loss of each value, and its derivative. */
  readonly compute: (outputs: Tensor, targets: Tensor) => readonly [losses: Tensor, slopes: Tensor]
}

/** (y - t)^2 */
const squares: Terms = {
  name: 'meanSquaredError',
  compute: (outputs, targets) => {
    const difference = tf.sub(outputs, targets)
    return [tf.square(difference), tf.mul(difference, 2)]
  },
}

/**
 * -t log s(y) - (1 - t) log(1 - s(y)) for the sigmoid s, computed as max(y, 0) - t y + log(1 +
 * exp(-|y|)), which cannot overflow.
 */
const binaryEntropies: Terms = {
  name: 'binaryCrossEntropy',
  compute: (logits, targets) => {
    const rest = tf.log1p(tf.exp(tf.neg(tf.abs(logits))))
    const losses = tf.add(tf.sub(tf.relu(logits), tf.mul(logits, targets)), rest)
    return [losses, tf.sub(tf.sigmoid(logits), targets)]
  },
}

/**
 * The mean of the squared differences between outputs and targets.
 *
 * @param outputs - [batch, ...] float32
 * @param targets - of the same shape; float32, int32 or bool
 * @param reduction - `mean` (default), or `sum` to add the means of the examples (the first axis)
 * @returns a scalar
 * @throws ERR_TSR_ARGUMENT when the shapes differ
 */
export function meanSquaredError(
  outputs: Tensor,
  targets: Tensor,
  reduction: Reduction = 'mean',
): Tensor {
  return differentiable((x) => evaluate(squares, x, targets, reduction), outputs)
}
meanSquaredError.reduction = 'mean' as const
meanSquaredError.record = recorder(squares, 'mean')

/** Returns the sum of the examples' mean squared errors; for a pipeline. */
export function summedMeanSquaredError(outputs: Tensor, targets: Tensor): Tensor {
  return meanSquaredError(outputs, targets, 'sum')
}
summedMeanSquaredError.reduction = 'sum' as const
meanSquaredError.summed = summedMeanSquaredError
summedMeanSquaredError.record = recorder(squares, 'sum')

/**
 * The mean binary cross-entropy of logits (the values before a sigmoid).
 *
 * @param logits - [batch, ...] float32
 * @param targets - of the same shape, from 0 to 1; float32, int32 or bool
 * @param reduction - `mean` (default), or `sum` to add the means of the examples (the first axis)
 * @returns a scalar
 * @throws ERR_TSR_ARGUMENT when the shapes differ
 */
export function binaryCrossEntropy(
  logits: Tensor,
  targets: Tensor,
  reduction: Reduction = 'mean',
): Tensor {
  return differentiable((x) => evaluate(binaryEntropies, x, targets, reduction), logits)
}
binaryCrossEntropy.reduction = 'mean' as const
binaryCrossEntropy.record = recorder(binaryEntropies, 'mean')
binaryCrossEntropy.countCorrect = countAnswers

/** Returns the sum of the examples' mean binary cross-entropies; for a pipeline. */
export function summedBinaryCrossEntropy(logits: Tensor, targets: Tensor): Tensor {
  return binaryCrossEntropy(logits, targets, 'sum')
}
summedBinaryCrossEntropy.reduction = 'sum' as const
binaryCrossEntropy.summed = summedBinaryCrossEntropy
summedBinaryCrossEntropy.record = recorder(binaryEntropies, 'sum')
summedBinaryCrossEntropy.countCorrect = countAnswers

/** Counts the logits whose sign predicts the target: positive for targets above 0.5. */
function countAnswers(logits: Tensor, targets: Tensor): number | Promise<number> {
  return takeScalar(
    tf.tidy(() => {
      const isRight = tf.equal(tf.greater(logits, 0), tf.greater(tf.cast(targets, 'float32'), 0.5))
      return tf.sum(tf.cast(isRight, 'int32'))
    }),
  )
}

function recorder(terms: Terms, reduction: Reduction) {
  return (outputs: Tensor, targets: Tensor) =>
    recordEvaluated(evaluate(terms, outputs, targets, reduction))
}

function evaluate(
  { name, compute }: Terms,
  outputs: Tensor,
  targets: Tensor,
  reduction: Reduction,
): EvaluatedLoss {
  checkShapes(name, outputs, targets)
  const weight = (reduction === 'mean' ? 1 : outputs.shape[0]) / outputs.size
  const [value, gradient] = tf.tidy<[Tensor, Tensor]>(() => {
    const [losses, slopes] = compute(outputs, tf.cast(targets, 'float32'))
    return [tf.mul(tf.sum(losses), weight), tf.keep(tf.mul(slopes, weight))]
  })
  return { value, gradient }
}

/** Without this check, TensorFlow.js would broadcast [batch] and [batch, 1] to [batch, batch]. */
function checkShapes(name: string, outputs: Tensor, targets: Tensor): void {
  if (outputs.shape.join() === targets.shape.join() && outputs.size > 0) return
  throw argumentError(
    `the targets of ${name}`,
    `a tensor of shape [${targets.shape.join(', ')}]`,
    `the shape of the outputs, [${outputs.shape.join(', ')}]`,
  )
}
