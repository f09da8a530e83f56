import { choice, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { scopedTensor, viewOf } from '../../backend/host-memory.ts'
import {
  checkLabels,
  crossEntropy,
  summedCrossEntropy,
  type Reduction,
} from '../../nn/cross-entropy.ts'
import type { Loss } from '../../nn/loss.ts'
import { tf } from '../../tfjs/tfjs.ts'
import { checkBackendBlocks, checkGroup } from '../requirements.ts'

/**
 * Cross-entropy of scores that are divided among ranks by classes, [..., classes of this rank]. The
 * scores are never gathered: the ranks exchange the largest score of each row, and then the sum of
 * exponentials and the score of the right class, 3 numbers per row (Shoeybi et al., 2019). All ranks
 * have the same loss, and each has the gradient of its scores. In a group of one rank it is
 * `crossEntropy`.
 *
 * @param reduction - `mean` over the examples (default), or their `sum`, which a pipeline needs
 * @throws ERR_TSR_ARGUMENT for an unknown reduction, and without a group; from the loss, on all ranks,
 *   when shapes do not fit or a label is no class of any rank
 *
 * @example
 * const pipe = pipeline(shared, mesh.pp, { loss: vocabParallelCrossEntropy(mesh.tp, 'sum') })
 */
export function vocabParallelCrossEntropy(
  group: ProcessGroup,
  reduction: Reduction = 'mean',
): Loss {
  checkGroup(group)
  reductionRule.check('reduction', reduction)
  if (group.size === 1) return { mean: crossEntropy, sum: summedCrossEntropy }[reduction]
  const loss = (logits: Tensor, labels: Tensor): Tensor => {
    checkBackendBlocks()
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
    reduction,
    countCorrect: (logits: Tensor, labels: Tensor) => countCorrect(logits, labels, group),
  })
}

const reductionRule = choice<Reduction>('mean', 'sum')

/** Counts the rows whose label has the largest score; of equal scores the lowest class counts. */
function countCorrect(logits: Tensor, labels: Tensor, group: ProcessGroup): number {
  checkShapes(logits, labels)
  const right = labels.dataSync<'int32'>()
  const { own, overall, offset, all } = shareLargest(logits, right.length, group)
  checkLabels(right, all)
  const classes = logits.size / right.length
  const scores = viewOf(logits)
  const best = group.alloc('int32', right.length)
  try {
    for (let row = 0; row < right.length; row++) {
      const at = scores.subarray(row * classes, (row + 1) * classes).indexOf(own[row]!)
      best[row] = own[row] === overall[row] ? offset + at : all
    }
    group.allReduceSync(best, { op: 'min', label: 'class of the largest score' })
    return right.reduce((count, label, row) => (best[row] === label ? count + 1 : count), 0)
  } finally {
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
  const { overall: largest, offset, all } = shareLargest(logits, rows, group)
  checkLabels(labels, all)
  const exponentials = new Float32Array(logits.size)
  const sums = group.alloc('float32', 2 * rows)
  try {
    const scores = viewOf(logits)
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
    group.free(sums)
  }
}

interface LargestScores {
  /** Of each row, among the classes of this rank. */
  readonly own: Float32Array
  /** Of each row, among all. */
  readonly overall: Float32Array
  /** The index of this rank's first class. */
  readonly offset: number
  /** The number of classes of all ranks. */
  readonly all: number
}

/**
 * Exchanges the largest score of each row and, in the same message, the number of classes of each rank,
 * which may differ by one.
 */
function shareLargest(logits: Tensor, rows: number, group: ProcessGroup): LargestScores {
  const { rank, size } = group
  const classes = logits.size / rows
  const buffer = group.alloc('float32', rows + size)
  try {
    const scores = viewOf(logits)
    const own = Float32Array.from({ length: rows }, (_, row) => {
      let most = -Infinity
      for (let i = row * classes; i < (row + 1) * classes; i++) most = Math.max(most, scores[i]!)
      return most
    })
    buffer.fill(0)
    buffer.set(own)
    buffer[rows + rank] = classes
    group.allReduceSync(buffer, { op: 'max', label: 'largest scores' })
    const counts = buffer.slice(rows)
    const sum = (values: Float32Array) => values.reduce((total, count) => total + count, 0)
    const overall = buffer.slice(0, rows)
    return { own, overall, offset: sum(counts.subarray(0, rank)), all: sum(counts) }
  } finally {
    group.free(buffer)
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
