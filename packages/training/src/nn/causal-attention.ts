import { isHostAccessible } from '../backend/current.ts'
import { scopedTensor, viewOf } from '../backend/host-memory.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import type { Probabilities, ProbabilityMask } from './dropout.ts'
import { inOrder } from './embedding.ts'

/*
 * Attention of queries to keys and values, forward and backward. All three have the shape [batch,
 * heads, length, size]. The open tf.tidy or recorded pass owns the results.
 */

type Three = readonly [Tensor, Tensor, Tensor]

/** An attention function of queries, keys and values [batch, heads, length, size], with its gradients. */
export interface AttentionCore {
  /** Whether each rank of a group holds only a part of the positions of a sequence. */
  readonly dividesSequences?: boolean

  /**
   * @param mask - dropout factors for the probabilities; default: no dropout
   * @returns the output, of the same shape, and the tensors that `backward` needs
   */
  forward(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask?: ProbabilityMask,
  ): { output: Tensor; saved: Tensor[] }

  /** Returns the gradients of the queries, keys and values. */
  backward(dy: Tensor, saved: readonly Tensor[], mask?: ProbabilityMask): Three
}

/**
 * softmax(q k' / sqrt(size)) v, where each position attends to itself and to earlier positions (Vaswani
 * et al., 2017). The backward pass reuses the probabilities [batch, heads, length, length].
 */
export const causalAttention: AttentionCore = {
  forward(q, k, v, mask) {
    const { probabilities } = attend(q, k, 'causal')
    const kept = mask?.(probabilitiesOf(probabilities))
    const output = tf.matMul(times(probabilities, kept), v)
    const saved = [q, k, v, probabilities, output, ...(kept === undefined ? [] : [kept])]
    return { output, saved }
  },
  backward(dy, saved) {
    const [q, k, v, probabilities, output] = saved as [Tensor, Tensor, Tensor, Tensor, Tensor]
    const kept = saved[5]
    const products = tf.sum(tf.mul(dy, output), -1, true)
    const dProbabilities = times(tf.matMul(dy, v, false, true), kept)
    const dScores = scoreGradient(probabilities, dProbabilities, products, q.shape[3]!)
    return [
      tf.matMul(dScores, k),
      tf.matMul(dScores, q, true, false),
      tf.matMul(times(probabilities, kept), dy, true, false),
    ]
  },
}

/** Applies a dropout mask to probabilities or to their gradients. */
export function times(x: Tensor, kept: Tensor | undefined): Tensor {
  return kept === undefined ? x : tf.mul(x, kept)
}

function probabilitiesOf({ shape }: Tensor): Probabilities {
  const [, , length] = shape as Probabilities['shape']
  const positions = inOrder(length)
  return { shape: shape as Probabilities['shape'], queries: positions, keys: positions, length }
}

/** `causal`: query i attends to the keys 0 .. i. `full`: each query attends to all keys. */
export type Mask = 'causal' | 'full'

/**
 * Returns softmax(q k' / sqrt(size)) under the mask: the probabilities [batch, heads, queries, keys],
 * whose rows sum to 1, and log(sum(exp(scores))) of each row [batch, heads, queries, 1].
 */
export function attend(q: Tensor, k: Tensor, mask: Mask) {
  const scores = tf.matMul(q, k, false, true)
  const scale = 1 / Math.sqrt(q.shape[3]!)
  return isHostAccessible() ? softmaxOnHost(scores, scale, mask) : softmax(scores, scale, mask)
}

/** Recomputes attention probabilities from the `logSums` of their rows. */
export function attendAgain(q: Tensor, k: Tensor, mask: Mask, logSums: Tensor): Tensor {
  const scores = tf.matMul(q, k, false, true)
  const scale = 1 / Math.sqrt(q.shape[3]!)
  if (!isHostAccessible()) return tf.exp(tf.sub(masked(tf.mul(scores, scale), mask), logSums))
  return scopedTensor(scores.shape, (out) => {
    const [from, sums] = [viewOf(scores), viewOf(logSums)]
    out.fill(0)
    eachRow(scores, mask, (start, count, row) => {
      for (let i = start; i < start + count; i++) out[i] = Math.exp(from[i]! * scale - sums[row]!)
    })
  })
}

/**
 * Returns the gradient of q k': probabilities (dProbabilities - products) / sqrt(size).
 *
 * @param dProbabilities - [batch, heads, queries, keys]
 * @param products - the output times its gradient, summed over the last axis: [batch, heads,
 *   queries, 1]
 */
export function scoreGradient(
  probabilities: Tensor,
  dProbabilities: Tensor,
  products: Tensor,
  size: number,
): Tensor {
  const scale = 1 / Math.sqrt(size)
  if (!isHostAccessible()) {
    return tf.mul(tf.mul(probabilities, tf.sub(dProbabilities, products)), scale)
  }
  return scopedTensor(probabilities.shape, (out) => {
    const [p, d, sums] = [viewOf(probabilities), viewOf(dProbabilities), viewOf(products)]
    eachRow(probabilities, 'full', (start, count, row) => {
      for (let i = start; i < start + count; i++) out[i] = p[i]! * (d[i]! - sums[row]!) * scale
    })
  })
}

function softmax(scores: Tensor, scale: number, mask: Mask) {
  const visible = masked(tf.mul(scores, scale), mask)
  const logSums = tf.logSumExp(visible, -1, true)
  return { probabilities: tf.exp(tf.sub(visible, logSums)), logSums }
}

function softmaxOnHost(scores: Tensor, scale: number, mask: Mask) {
  const [batch, heads, queries] = scores.shape as [number, number, number]
  const sums = new Float32Array(batch * heads * queries)
  const probabilities = scopedTensor(scores.shape, (out) => {
    const from = viewOf(scores)
    out.fill(0)
    eachRow(scores, mask, (start, count, row) => {
      const end = start + count
      let largest = -Infinity
      for (let i = start; i < end; i++) if (from[i]! > largest) largest = from[i]!
      let total = 0
      for (let i = start; i < end; i++) {
        const exponential = Math.exp((from[i]! - largest) * scale)
        out[i] = exponential
        total += exponential
      }
      for (let i = start; i < end; i++) out[i]! /= total
      sums[row] = largest * scale + Math.log(total)
    })
  })
  const logSums = scopedTensor([batch, heads, queries, 1], (out) => {
    out.set(sums)
  })
  return { probabilities, logSums }
}

/**
 * Calls `visit` with the index of the first value of each row, and the number of keys that the
 * row's query attends to.
 */
function eachRow(
  { shape, size }: Tensor,
  mask: Mask,
  visit: (start: number, count: number, row: number) => void,
): void {
  const [, , queries, keys] = shape as [number, number, number, number]
  for (let row = 0; row < size / keys; row++) {
    visit(row * keys, mask === 'full' ? keys : (row % queries) + 1, row)
  }
}

/** The score of a masked key: far below all real scores, but finite, so that differences are not NaN. */
const MASKED = -1e30

function masked(scores: Tensor, mask: Mask): Tensor {
  if (mask === 'full') return scores
  const [queries, keys] = scores.shape.slice(2) as [number, number]
  const bias = Float32Array.from({ length: queries * keys }, (_, i) =>
    i % keys > Math.floor(i / keys) ? MASKED : 0,
  )
  return tf.add(scores, tf.tensor2d(bias, [queries, keys]))
}
