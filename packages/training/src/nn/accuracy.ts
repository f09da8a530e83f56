import type { Tensor } from '@tensorflow/tfjs-core'
import { viewOf } from '../backend/host-memory.ts'

/**
 * How many rows have their largest logit at the label; the lowest index wins among equals.
 *
 * @param logits - [batch, classes] float32
 * @param labels - [batch] int32
 */
export function countCorrect(logits: Tensor, labels: Tensor): number {
  const classes = logits.shape[1]!
  const right = labels.dataSync<'int32'>()
  const values = viewOf(logits)
  return right.reduce((correct, label, row) => {
    const scores = values.subarray(row * classes, (row + 1) * classes)
    let best = 0
    for (let k = 1; k < classes; k++) if (scores[k]! > scores[best]!) best = k
    return best === label ? correct + 1 : correct
  }, 0)
}
