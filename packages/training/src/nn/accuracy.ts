import type { Tensor } from '@tensorflow/tfjs-core'
import { isHostAccessible } from '../backend/current.ts'
import { takeScalar, viewOf } from '../backend/host-memory.ts'
import { tf } from '../tfjs/tfjs.ts'

/**
 * How many rows have their largest logit at the label; the lowest index wins among equals.
 *
 * @param logits - [..., classes] float32
 * @param labels - [...] int32
 */
export function countCorrect(logits: Tensor, labels: Tensor): number {
  const classes = logits.shape.at(-1)!
  const right = labels.dataSync<'int32'>()
  const values = viewOf(logits)
  return right.reduce((correct, label, row) => {
    const scores = values.subarray(row * classes, (row + 1) * classes)
    let best = 0
    for (let k = 1; k < classes; k++) if (scores[k]! > scores[best]!) best = k
    return best === label ? correct + 1 : correct
  }, 0)
}

/** The same on every backend; a promise where the count has to be fetched from a device. */
export function fetchCorrect(logits: Tensor, labels: Tensor): number | Promise<number> {
  if (isHostAccessible()) return countCorrect(logits, labels)
  const correct = tf.tidy(() => tf.sum(tf.cast(tf.equal(tf.argMax(logits, -1), labels), 'int32')))
  return takeScalar(correct)
}
