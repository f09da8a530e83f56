import {
  joinHeads,
  splitHeads,
  type Tensor,
  type TensorBackend,
  tf,
} from '@tsrun/training/backends'

/** The score of a masked key: far below all real scores, but finite, so that differences are not NaN. */
const MASKED = -1e30

/** Causal attention in fewer passes over the scores. The queries are scaled instead of the scores. */
export const attention: Required<TensorBackend>['attention'] = (rows, size) => {
  const scale = 1 / Math.sqrt(size)
  const [queries, k, v] = splitHeads(rows, 3, size) as [Tensor, Tensor, Tensor]
  const q = tf.mul(queries, scale)
  const scores = tf.matMul(q, k, false, true)
  const probabilities = softmax(masked(scores))
  const output = tf.matMul(probabilities, v)
  return {
    value: joinHeads([output]),
    saved: [q, k, v, probabilities, output],
    gradients(dy, saved) {
      const [q, k, v, probabilities, output] = saved as [Tensor, Tensor, Tensor, Tensor, Tensor]
      const [slopes] = splitHeads(dy, 1, size) as [Tensor]
      const products = tf.sum(tf.mul(slopes, output), -1, true)
      const dProbabilities = tf.matMul(slopes, v, false, true)
      const dScores = tf.mul(probabilities, tf.sub(dProbabilities, products))
      return [
        joinHeads([
          tf.mul(tf.matMul(dScores, k), scale),
          tf.matMul(dScores, q, true, false),
          tf.matMul(probabilities, slopes, true, false),
        ]),
      ]
    },
  }
}

/** Avoids TensorFlow's softmax, which rounds differently in functions, because these use oneDNN. */
function softmax(scores: Tensor): Tensor {
  const powers = tf.exp(tf.sub(scores, tf.max(scores, -1, true)))
  return tf.div(powers, tf.sum(powers, -1, true))
}

function masked(scores: Tensor): Tensor {
  // TensorFlow.js cannot extend a mask to a batch of no sequences.
  if (scores.size === 0) return scores
  const length = scores.shape[2]!
  const keys = tf.range(0, length)
  return tf.where(tf.lessEqual(keys, tf.reshape(keys, [length, 1])), scores, MASKED)
}
