import type { Tensor } from '@tensorflow/tfjs-core'
import { isHostAccessible } from '../backend/current.ts'
import { scopedTensor, viewOf } from '../backend/host-memory.ts'
import { tf } from '../tfjs/tfjs.ts'

/*
 * Attention of some queries to some keys and values, all [batch, heads, length, size], and what its
 * gradient needs. Tensors belong to the scope that is open.
 */

/** `causal`: query i sees the keys up to i. `full`: all of them. */
export type Mask = 'causal' | 'full'

export interface AttentionBlock {
  /** Shares of the keys: rows of sum 1. [batch, heads, queries, keys] */
  readonly shares: Tensor
  /** log of the sum of exponentials of the scores, [batch, heads, queries, 1] */
  readonly logSums: Tensor
}

/** softmax(scale q k') under the mask. */
export function attend(q: Tensor, k: Tensor, mask: Mask): AttentionBlock {
  const scores = tf.matMul(q, k, false, true)
  const scale = 1 / Math.sqrt(q.shape[3]!)
  return isHostAccessible() ? softmaxOnHost(scores, scale, mask) : softmax(scores, scale, mask)
}

/** The shares again, from the sums that belong to them. */
export function attendAgain(q: Tensor, k: Tensor, mask: Mask, logSums: Tensor): Tensor {
  const scores = tf.matMul(q, k, false, true)
  const scale = 1 / Math.sqrt(q.shape[3]!)
  if (!isHostAccessible()) return tf.exp(tf.sub(masked(tf.mul(scores, scale), mask), logSums))
  return scopedTensor(scores.shape, (out) => {
    const [from, sums] = [viewOf(scores), viewOf(logSums)]
    out.fill(0)
    eachRow(scores, mask, (start, seen, row) => {
      for (let i = start; i < start + seen; i++) out[i] = Math.exp(from[i]! * scale - sums[row]!)
    })
  })
}

/**
 * The gradient of the scores before scaling, shares (dShares - products) scale.
 *
 * @param dShares - [batch, heads, queries, keys]
 * @param products - of the output and its gradient, summed: [batch, heads, queries, 1]
 */
export function scoreGradient(
  shares: Tensor,
  dShares: Tensor,
  products: Tensor,
  size: number,
): Tensor {
  const scale = 1 / Math.sqrt(size)
  if (!isHostAccessible()) return tf.mul(tf.mul(shares, tf.sub(dShares, products)), scale)
  return scopedTensor(shares.shape, (out) => {
    const [p, d, sums] = [viewOf(shares), viewOf(dShares), viewOf(products)]
    eachRow(shares, 'full', (start, count, row) => {
      for (let i = start; i < start + count; i++) out[i] = p[i]! * (d[i]! - sums[row]!) * scale
    })
  })
}

function softmax(scores: Tensor, scale: number, mask: Mask): AttentionBlock {
  const visible = masked(tf.mul(scores, scale), mask)
  const logSums = tf.logSumExp(visible, -1, true)
  return { shares: tf.exp(tf.sub(visible, logSums)), logSums }
}

function softmaxOnHost(scores: Tensor, scale: number, mask: Mask): AttentionBlock {
  const [batch, heads, queries] = scores.shape as [number, number, number]
  const sums = new Float32Array(batch * heads * queries)
  const shares = scopedTensor(scores.shape, (out) => {
    const from = viewOf(scores)
    out.fill(0)
    eachRow(scores, mask, (start, seen, row) => {
      const end = start + seen
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
  return { shares, logSums }
}

/** Calls `visit` with the first index of each row and how many keys it sees. */
function eachRow(
  { shape, size }: Tensor,
  mask: Mask,
  visit: (start: number, seen: number, row: number) => void,
): void {
  const [, , queries, keys] = shape as [number, number, number, number]
  for (let row = 0; row < size / keys; row++) {
    visit(row * keys, mask === 'full' ? keys : (row % queries) + 1, row)
  }
}

/** Far below all scores, but finite: differences stay numbers. */
const UNSEEN = -1e30

function masked(scores: Tensor, mask: Mask): Tensor {
  if (mask === 'full') return scores
  const [queries, keys] = scores.shape.slice(2) as [number, number]
  const unseen = Float32Array.from({ length: queries * keys }, (_, i) =>
    i % keys > Math.floor(i / keys) ? UNSEEN : 0,
  )
  return tf.add(scores, tf.tensor2d(unseen, [queries, keys]))
}
