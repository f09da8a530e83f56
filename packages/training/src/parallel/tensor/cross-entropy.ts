import { argumentError, choice } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { withGradients } from '../../autograd/tape.ts'
import { scopedTensor, viewOf } from '../../backend/host-memory.ts'
import {
  checkLabels,
  countLabels,
  crossEntropy,
  crossEntropyWith,
  readCrossEntropyOptions,
  summedCrossEntropy,
  withoutIgnored,
  type CrossEntropyOptions,
} from '../../nn/cross-entropy.ts'
import type { Answers, Loss, Reduction } from '../../nn/loss.ts'
import type { Differentiable, LabelTargets } from '../../tfjs/backend.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { checkBackendBlocks, checkGroup } from '../requirements.ts'

/**
 * Returns a cross-entropy loss for scores whose classes are divided among ranks: [..., classes of this
 * rank] (Shoeybi et al., 2019). The ranks never gather all scores. They exchange 3 numbers per row: the
 * largest score, the sum of exponentials, and the score of the correct class. With `labelSmoothing` they
 * exchange 4. All ranks get the same loss, and each rank gets the gradient of its scores. In a group of
 * one rank, the loss is `crossEntropy` or `crossEntropyWith`.
 *
 * @param options - `mean` over the examples (default); or their `sum`, which a pipeline requires;
 *   or the options of `crossEntropyWith`
 * @throws ERR_TSR_ARGUMENT for invalid options, and without a group. The loss throws it on all
 *   ranks when shapes do not match, or when a label that is not ignored is not a class of any rank
 * @example
 * const pipe = pipeline(shared, mesh.pp, { loss: vocabParallelCrossEntropy(mesh.tp, 'sum') })
 */
export function vocabParallelCrossEntropy(
  group: ProcessGroup,
  options: Reduction | CrossEntropyOptions = 'mean',
): Loss {
  checkGroup(group)
  if (typeof options === 'object') {
    if (group.size === 1) return crossEntropyWith(options)
    const { reduction, ...targets } = readCrossEntropyOptions(options)
    const { ignoreIndex } = targets
    const loss = (of: Reduction) => {
      const weightOf = (labels: Int32Array) =>
        of === 'sum' ? 1 : 1 / Math.max(1, withoutIgnored(labels, ignoreIndex).length)
      return Object.assign(lossOn(group, of, targets, weightOf), {
        count: (labels: Tensor) => countLabels(labels, ignoreIndex),
      })
    }
    return reduction === 'sum' ? loss('sum') : Object.assign(loss('mean'), { summed: loss('sum') })
  }
  reductionRule.check('reduction', options)
  if (group.size === 1) return { mean: crossEntropy, sum: summedCrossEntropy }[options]
  const targets = { ignoreIndex: undefined, labelSmoothing: 0 }
  return lossOn(
    group,
    options,
    targets,
    ({ length }, examples) => (options === 'mean' ? 1 : examples) / length,
  )
}

const reductionRule = choice<Reduction>('mean', 'sum')

/** Returns a loss that is the sum over the labels that are not ignored, times a weight. */
function lossOn(
  group: ProcessGroup,
  reduction: Reduction,
  targets: LabelTargets,
  weightOf: (labels: Int32Array, examples: number) => number,
): Loss {
  const loss = (logits: Tensor, labels: Tensor) => {
    checkShapes(logits, labels)
    checkBackendBlocks()
    const right = labels.dataSync<'int32'>()
    const weight = weightOf(right, logits.shape[0])
    return withGradients([logits], (input) => evaluate(input, right, group, weight, targets))
  }
  return Object.assign(loss, {
    reduction,
    countCorrect(logits: Tensor, labels: Tensor) {
      const answers = countCorrect(logits, labels, group, targets.ignoreIndex)
      return targets.ignoreIndex === undefined ? answers.correct : answers
    },
  })
}

/**
 * Counts the rows whose correct class has the largest score. Skips ignored rows. If scores are equal,
 * the lowest class wins.
 */
function countCorrect(
  logits: Tensor,
  labels: Tensor,
  group: ProcessGroup,
  ignored: number | undefined,
): Answers {
  checkShapes(logits, labels)
  const right = labels.dataSync<'int32'>()
  const { own, overall, offset, all } = shareLargest(logits, right.length, group)
  const counting = withoutIgnored(right, ignored)
  checkLabels(counting, all)
  const classes = logits.size / right.length
  const scores = viewOf(logits)
  const best = right.map((_, row) => {
    const at = scores.subarray(row * classes, (row + 1) * classes).indexOf(own[row]!)
    return own[row] === overall[row] ? offset + at : all
  })
  group.allReduceSync(best, { op: 'min', label: 'class of the largest score' })
  const isRight = (label: number, row: number) => label !== ignored && best[row] === label
  return { correct: right.filter(isRight).length, of: counting.length }
}

function evaluate(
  logits: Tensor,
  labels: Int32Array,
  group: ProcessGroup,
  weight: number,
  { ignoreIndex, labelSmoothing }: LabelTargets,
): Differentiable {
  const rows = labels.length
  const classes = logits.size / rows
  const { overall: largest, offset, all } = shareLargest(logits, rows, group)
  checkLabels(withoutIgnored(labels, ignoreIndex), all)
  const shared = labelSmoothing / all
  const exponentials = new Float32Array(logits.size)
  const sums = new Float32Array((shared > 0 ? 3 : 2) * rows)
  const scores = viewOf(logits)
  for (let row = 0; row < rows; row++) {
    let [total, sum] = [0, 0]
    for (let i = row * classes; i < (row + 1) * classes; i++) {
      const score = scores[i]! - largest[row]!
      total += exponentials[i] = Math.exp(score)
      sum += score
    }
    sums[row] = total
    if (shared > 0) sums[2 * rows + row] = sum
    const own = labels[row]! - offset
    if (own >= 0 && own < classes) sums[rows + row] = scores[row * classes + own]! - largest[row]!
  }
  group.allReduceSync(sums, { label: 'sums of exponentials and right scores' })
  let loss = 0
  for (let row = 0; row < rows; row++) {
    if (labels[row] === ignoreIndex) continue
    loss += Math.log(sums[row]!)
    // Skip the term if its factor is 0, because a score may be -Infinity.
    if (labelSmoothing < 1) loss -= (1 - labelSmoothing) * sums[rows + row]!
    if (shared > 0) loss -= shared * sums[2 * rows + row]!
  }
  const gradient = scopedTensor(logits.shape, (out) => {
    for (let row = 0; row < rows; row++) {
      const [start, end] = [row * classes, (row + 1) * classes]
      if (labels[row] === ignoreIndex) {
        out.fill(0, start, end)
        continue
      }
      const scale = weight / sums[row]!
      for (let i = start; i < end; i++) out[i] = exponentials[i]! * scale - shared * weight
      const own = labels[row]! - offset
      if (own >= 0 && own < classes) out[start + own]! -= (1 - labelSmoothing) * weight
    }
  })
  return {
    value: tf.scalar(loss * weight),
    saved: [gradient],
    gradients: (dy, [slopes]) => [tf.mul(slopes!, dy)],
  }
}

/** Exchanges the largest score of each row, and the number of classes on each rank, in one all-gather. */
function shareLargest(logits: Tensor, rows: number, group: ProcessGroup) {
  const { rank, size } = group
  const classes = logits.size / rows
  const scores = viewOf(logits)
  const own = Float32Array.from({ length: rows }, (_, row) => {
    let most = -Infinity
    for (let i = row * classes; i < (row + 1) * classes; i++) most = Math.max(most, scores[i]!)
    return most
  })
  const largest = new Float32Array(rows + size)
  largest.set(own)
  largest[rows + rank] = classes
  group.allReduceSync(largest, { op: 'max', label: 'largest scores' })
  const counts = largest.subarray(rows)
  const sum = (values: Float32Array) => values.reduce((total, count) => total + count, 0)
  return {
    /** The largest score of each row among the classes of this rank. */
    own,
    /** The largest score of each row among all classes. */
    overall: largest.subarray(0, rows),
    /** The index of this rank's first class among all classes. */
    offset: sum(counts.subarray(0, rank)),
    /** The number of classes on all ranks together. */
    all: sum(counts),
  }
}

function checkShapes(logits: Tensor, labels: Tensor) {
  const fits = logits.rank >= 2 && labels.shape.join() === logits.shape.slice(0, -1).join()
  if (fits && labels.dtype === 'int32' && labels.size > 0) return
  throw argumentError(
    'vocabParallelCrossEntropy(logits, labels)',
    `[${logits.shape.join(', ')}], ${labels.dtype} [${labels.shape.join(', ')}]`,
    '[..., classes of this rank] and int32 [...]',
  )
}
