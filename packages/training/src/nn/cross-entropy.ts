import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { checkOutputGradient } from '../autograd/check-tensors.ts'
import type { Recording } from '../model/recording.ts'
import { reachesTensors } from '../backend/bridge/select.ts'
import { currentEager, type Eager, type Handle } from '../backend/tensorflow/eager.ts'
import { createTensor, valuesAtHand, viewOf } from '../backend/host-memory.ts'
import { tf } from '../backend/tfjs.ts'
import { refusePartial } from './partial-scores.ts'

/** Whether a loss is averaged over its examples or summed; that of one is the mean over its tokens. */
export type Reduction = 'mean' | 'sum'

/**
 * Cross-entropy between the softmax of `logits` and the right classes: -log p(label).
 *
 * Differentiable in `logits`. Its gradient is written out, softmax - one-hot, and computed along
 * with the loss; exponents are taken relative to the largest logit, so that nothing overflows.
 *
 * @param logits - [batch, classes] float32; or [..., classes], for example of each token of a text
 * @param labels - [batch] int32, or [...], each in [0, classes)
 * @param reduction - `mean` over the batch (default), or `sum`: the sums over micro-batches of any
 *   sizes, added up and divided by the size of the batch, are the mean over the batch
 * @returns a scalar
 * @throws ERR_TSR_ARGUMENT when shapes do not fit or a label is out of range, and for scores of a
 *   part of the classes, whose rest other ranks have: see `vocabParallelCrossEntropy`
 *
 * @example
 * const loss = crossEntropy(model.forward(x), labels)
 */
export function crossEntropy(
  logits: Tensor,
  labels: Tensor,
  reduction: Reduction = 'mean',
): Tensor {
  const loss = tf.customGrad((input, save) => {
    const { value, gradient } = evaluate(input as Tensor, labels, reduction)
    ;(save as (tensors: Tensor[]) => void)([gradient])
    gradient.dispose()
    return { value, gradFunc: (dy: Tensor, saved: Tensor[]) => tf.mul(saved[0]!, dy) }
  })
  return loss(logits)
}
crossEntropy.reduction = 'mean' as const
crossEntropy.record = (logits: Tensor, labels: Tensor) => recordCrossEntropy(logits, labels, 'mean')

/**
 * The sum over the examples, the first axis, instead of the mean: what a pipeline adds up over
 * micro-batches.
 */
export function summedCrossEntropy(logits: Tensor, labels: Tensor): Tensor {
  return crossEntropy(logits, labels, 'sum')
}
summedCrossEntropy.reduction = 'sum' as const
summedCrossEntropy.record = (logits: Tensor, labels: Tensor) =>
  recordCrossEntropy(logits, labels, 'sum')

/** Without the tape: the gradient is there as soon as the loss is. */
function recordCrossEntropy(logits: Tensor, labels: Tensor, reduction: Reduction): Recording {
  const { value, gradient } = evaluate(logits, labels, reduction)
  tf.keep(value)
  let spent = false
  return {
    value,
    backward(dy: Tensor): Tensor {
      if (spent) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
      checkOutputGradient(dy, value)
      spent = true
      return tf.keep(tf.mul(gradient, dy))
    },
    dispose(): void {
      spent = true
      value.dispose()
      gradient.dispose()
    },
  }
}

function evaluate(
  logits: Tensor,
  labels: Tensor,
  reduction: Reduction,
): { value: Tensor; gradient: Tensor } {
  const [rows, classes] = checkShapes(logits, labels)
  refusePartial(logits)
  const right = valuesAtHand(labels) as Int32Array | undefined
  if (right !== undefined) checkLabels(right, classes)
  const weight = (reduction === 'mean' ? 1 : logits.shape[0]) / rows
  const eager = currentEager()
  if (eager !== undefined && logits.rank === 2) {
    return evaluateEagerly(eager, logits, labels, weight)
  }
  if (right === undefined || !reachesTensors()) {
    return evaluateOnDevice(logits, labels, classes, weight)
  }
  let loss = 0
  const gradient = createTensor(logits.shape, (out) => {
    // not `right`: memory may have moved
    const there = valuesAtHand(labels) as Int32Array
    loss = lossAndGradient(out, viewOf(logits), there, classes, weight)
  })
  return { value: tf.scalar(loss), gradient }
}

/** @throws ERR_TSR_ARGUMENT when one is not that of a class */
export function checkLabels(labels: Int32Array, classes: number): void {
  const wrong = labels.find((label) => !(label >= 0 && label < classes))
  if (wrong === undefined) return
  const expected = `0 to ${String(classes - 1)}`
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'a label', value: wrong, expected })
}

/** With TensorFlow's own operation; the gradient outlives any tf.tidy. */
function evaluateEagerly(
  eager: Eager,
  logits: Tensor,
  labels: Tensor,
  weight: number,
): { value: Tensor; gradient: Tensor } {
  const { losses, gradient } = eager.crossEntropy(eager.handleOf(logits), eager.handleOf(labels))
  const loss = eager.sum(losses)
  eager.free(losses)
  const value = eager.take(weighted(eager, loss, weight), [])
  value.kept = false
  return { value, gradient: eager.take(weighted(eager, gradient, weight), logits.shape) }
}

/** weight * x, in the place of x. */
function weighted(eager: Eager, x: Handle, weight: number): Handle {
  if (weight === 1) return x
  const factor = eager.scalar(weight)
  const product = eager.multiply(x, factor)
  eager.free(factor)
  eager.free(x)
  return product
}

/** Without a look at any value. Labels that only the device has are not checked. */
function evaluateOnDevice(
  logits: Tensor,
  labels: Tensor,
  classes: number,
  weight: number,
): { value: Tensor; gradient: Tensor } {
  const [value, gradient] = tf.tidy<[Tensor, Tensor]>(() => {
    const right = tf.oneHot(labels, classes, 1, 0, 'float32')
    const shifted = tf.sub(logits, tf.max(logits, -1, true))
    const exponentials = tf.exp(shifted)
    const totals = tf.sum(exponentials, -1, true)
    const losses = tf.sub(tf.log(totals), tf.sum(tf.mul(right, shifted), -1, true))
    const slopes = tf.sub(tf.div(exponentials, totals), right)
    return [tf.mul(tf.sum(losses), weight), tf.keep(tf.mul(slopes, weight))]
  })
  return { value, gradient }
}

/** Writes weight * (softmax - one-hot) to `gradient` and returns weight * loss, row by row. */
function lossAndGradient(
  gradient: Float32Array,
  logits: Float32Array,
  labels: Int32Array,
  classes: number,
  weight: number,
): number {
  let loss = 0
  labels.forEach((label, row) => {
    const start = row * classes
    const end = start + classes
    let largest = -Infinity
    for (let p = start; p < end; p++) largest = Math.max(largest, logits[p]!)
    let total = 0
    for (let p = start; p < end; p++) {
      const exponential = Math.exp(logits[p]! - largest)
      gradient[p] = exponential
      total += exponential
    }
    for (let p = start; p < end; p++) gradient[p] = (gradient[p]! / total) * weight
    gradient[start + label]! -= weight
    loss += Math.log(total) - (logits[start + label]! - largest)
  })
  return loss * weight
}

function checkShapes(logits: Tensor, labels: Tensor): [rows: number, classes: number] {
  const rows = labels.size
  const fits = logits.rank >= 2 && labels.shape.join() === logits.shape.slice(0, -1).join()
  if (!fits || labels.dtype !== 'int32' || rows === 0) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'crossEntropy(logits, labels)',
      value: `[${logits.shape.join(', ')}], ${labels.dtype} [${labels.shape.join(', ')}]`,
      expected: '[batch, classes] and int32 [batch], or [..., classes] and int32 [...]',
    })
  }
  return [rows, logits.shape.at(-1)!]
}
