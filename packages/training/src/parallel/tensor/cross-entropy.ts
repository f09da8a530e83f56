import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { scopedTensor, viewOf } from '../../backend/host-memory.ts'
import { tf } from '../../backend/tensorflow.ts'
import type { Reduction } from '../../nn/cross-entropy.ts'
import type { Loss } from '../../nn/loss.ts'
import { blockingBackend } from './blocking.ts'

/**
 * Cross-entropy of scores that ranks share by classes, [..., classes / size], which are never
 * gathered: the ranks exchange the largest score of each row, and together the sum of exponentials
 * and the score of the right class, 3 numbers a row (Shoeybi et al., 2019). All ranks have the same
 * loss, and each the gradient of its scores.
 *
 * @param reduction - `sum` (default) over the examples, as a pipeline needs it, or their `mean`
 *
 * @example
 * const pipe = pipeline(shared, mesh.pp, { loss: vocabParallelCrossEntropy(mesh.tp) })
 */
export function vocabParallelCrossEntropy(group: ProcessGroup, reduction: Reduction = 'sum'): Loss {
  const loss = (logits: Tensor, labels: Tensor): Tensor => {
    blockingBackend()
    checkShapes(logits, labels)
    const weight = (reduction === 'mean' ? 1 : logits.shape[0]) / labels.size
    const right = labels.dataSync<'int32'>()
    return tf.customGrad((input, save) => {
      const { loss, gradient } = evaluate(input as Tensor, right, group, weight)
      ;(save as (tensors: Tensor[]) => void)([gradient])
      return {
        value: tf.scalar(loss),
        gradFunc: (dy: Tensor, saved: Tensor[]) => tf.mul(saved[0]!, dy),
      }
    })(logits)
  }
  return Object.assign(loss, {
    countCorrect: (logits: Tensor, labels: Tensor) => countCorrect(logits, labels, group),
  })
}

/** The largest score of each row and who has it: the lowest class wins among equals. */
function countCorrect(logits: Tensor, labels: Tensor, group: ProcessGroup): number {
  checkShapes(logits, labels)
  const right = labels.dataSync<'int32'>()
  const classes = logits.size / right.length
  const scores = viewOf(logits)
  const largest = group.alloc('float32', right.length)
  const best = group.alloc('int32', right.length)
  try {
    for (let row = 0; row < right.length; row++) {
      const own = scores.subarray(row * classes, (row + 1) * classes)
      const at = own.reduce((most, score, i) => (score > own[most]! ? i : most), 0)
      best[row] = at
      largest[row] = own[at]!
    }
    const mine = Float32Array.from(largest)
    group.allReduceSync(largest, { op: 'max', label: 'largest score' })
    for (let row = 0; row < right.length; row++) {
      const isMine = mine[row] === largest[row]
      best[row] = isMine ? best[row]! + group.rank * classes : group.size * classes
    }
    group.allReduceSync(best, { op: 'min', label: 'class of the largest score' })
    return right.reduce((count, label, row) => (best[row] === label ? count + 1 : count), 0)
  } finally {
    group.free(largest)
    group.free(best)
  }
}

function evaluate(
  logits: Tensor,
  labels: Int32Array,
  group: ProcessGroup,
  weight: number,
): { loss: number; gradient: Tensor } {
  const rows = labels.length
  const classes = logits.size / rows
  const offset = group.rank * classes
  const exponentials = new Float32Array(logits.size)
  const largest = group.alloc('float32', rows)
  const sums = group.alloc('float32', 2 * rows)
  try {
    const scores = viewOf(logits)
    for (let row = 0; row < rows; row++) {
      let most = -Infinity
      for (let i = row * classes; i < (row + 1) * classes; i++) most = Math.max(most, scores[i]!)
      largest[row] = most
    }
    group.allReduceSync(largest, { op: 'max', label: 'largest score' })
    sums.fill(0)
    for (let row = 0; row < rows; row++) {
      let total = 0
      for (let i = row * classes; i < (row + 1) * classes; i++) {
        total += exponentials[i] = Math.exp(scores[i]! - largest[row]!)
      }
      sums[row] = total
      const own = labels[row]! - offset
      if (own >= 0 && own < classes) sums[rows + row] = scores[row * classes + own]! - largest[row]!
    }
    group.allReduceSync(sums, { label: 'sums of exponentials and right scores' })
    let loss = 0
    for (let row = 0; row < rows; row++) loss += Math.log(sums[row]!) - sums[rows + row]!
    const gradient = scopedTensor(logits.shape, (out) => {
      for (let row = 0; row < rows; row++) {
        const scale = weight / sums[row]!
        for (let i = row * classes; i < (row + 1) * classes; i++) out[i] = exponentials[i]! * scale
        const own = labels[row]! - offset
        if (own >= 0 && own < classes) out[row * classes + own]! -= weight
      }
    })
    return { loss: loss * weight, gradient }
  } finally {
    group.free(largest)
    group.free(sums)
  }
}

function checkShapes(logits: Tensor, labels: Tensor): void {
  const fits = logits.rank >= 2 && labels.shape.join() === logits.shape.slice(0, -1).join()
  if (fits && labels.dtype === 'int32' && labels.size > 0) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'vocabParallelCrossEntropy(logits, labels)',
    value: `[${logits.shape.join(', ')}], ${labels.dtype} [${labels.shape.join(', ')}]`,
    expected: '[..., classes of this rank] and int32 [...]',
  })
}
