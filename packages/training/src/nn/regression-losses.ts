import { argumentError } from '@tsrun/core'
import { takeScalar } from '../backend/host-memory.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { meanAndSum, type Loss, type Maybe } from './loss.ts'

/**
 * Makes losses that are computed value by value, from outputs and targets of equal shapes.
 *
 * @param compute - returns the loss of each value, and its derivative
 */
function valueByValue(
  name: string,
  compute: (outputs: Tensor, targets: Tensor) => readonly [losses: Tensor, slopes: Tensor],
  tags?: Pick<Loss, 'countCorrect'>,
) {
  return meanAndSum(
    name,
    (outputs, targets, reduction) => {
      checkShapes(name, outputs, targets)
      const weight = (reduction === 'mean' ? 1 : outputs.shape[0]) / outputs.size
      const [value, gradient] = tf.tidy<[Tensor, Tensor]>(() => {
        const [losses, slopes] = compute(outputs, tf.cast(targets, 'float32'))
        return [tf.mul(tf.sum(losses), weight), tf.keep(tf.mul(slopes, weight))]
      })
      return { value, gradient }
    },
    tags,
  )
}

/** (y - t)^2 */
const squares = valueByValue('meanSquaredError', (outputs, targets) => {
  const difference = tf.sub(outputs, targets)
  return [tf.square(difference), tf.mul(difference, 2)]
})

/**
 * -t log s(y) - (1 - t) log(1 - s(y)) for the sigmoid s, computed as max(y, 0) - t y + log(1 +
 * exp(-|y|)), which cannot overflow.
 */
const binaryEntropies = valueByValue(
  'binaryCrossEntropy',
  (logits, targets) => {
    const rest = tf.log1p(tf.exp(tf.neg(tf.abs(logits))))
    const losses = tf.add(tf.sub(tf.relu(logits), tf.mul(logits, targets)), rest)
    return [losses, tf.sub(tf.sigmoid(logits), targets)]
  },
  { countCorrect: countAnswers },
)

/**
 * The mean of the squared differences between outputs and targets, float32 [batch, ...]. The targets
 * have the shape of the outputs, and may also be int32 or bool. Throws ERR_TSR_ARGUMENT when the
 * shapes differ.
 */
export const meanSquaredError: Loss = squares.mean

/** The sum over the examples (the first axis) of their mean squared errors. */
export const summedMeanSquaredError: Loss = squares.summed

/**
 * The mean binary cross-entropy of logits (the values before a sigmoid), float32 [batch, ...]. The
 * targets, from 0 to 1, have the shape of the logits, and may also be int32 or bool. Throws
 * ERR_TSR_ARGUMENT when the shapes differ.
 */
export const binaryCrossEntropy: Loss = binaryEntropies.mean

/** The sum over the examples (the first axis) of their mean binary cross-entropies. */
export const summedBinaryCrossEntropy: Loss = binaryEntropies.summed

/** Counts the logits whose sign predicts the target: positive for targets above 0.5. */
function countAnswers(logits: Tensor, targets: Tensor): Maybe<number> {
  return takeScalar(
    tf.tidy(() => {
      const isRight = tf.equal(tf.greater(logits, 0), tf.greater(tf.cast(targets, 'float32'), 0.5))
      return tf.sum(tf.cast(isRight, 'int32'))
    }),
  )
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
