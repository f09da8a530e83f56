import type { Tensor } from '@tensorflow/tfjs-core'
import { attend, attendAgain, scoreGradient, times, type Mask } from '../../nn/causal-attention.ts'
import { tf } from '../../tfjs/tfjs.ts'

/*
 * Attention to the keys and values of one rank after another with an online softmax (Milakov &
 * Gimelshein, 2018; Dao et al., FlashAttention, 2022). Tensors have the shape [batch, heads, length,
 * size], logarithms of sums [batch, heads, length, 1].
 */

/** The output over the keys seen so far, and the logarithm of the sum of exponentials of their scores. */
export interface Partial {
  readonly output: Tensor
  readonly logSums: Tensor
}

/** The queries of a rank that see keys of another rank, and these keys: see `zigzagPositions`. */
interface View {
  readonly mask: Mask
  readonly queries: 'all' | 'late'
  readonly keys: 'all' | 'early'
}

/**
 * For a lower holder, the early section precedes both sections of this rank, and the late section follows
 * both. For a higher holder, both sections lie between the early and the late section of this rank.
 */
export function viewOn(holder: number, rank: number): View {
  if (holder === rank) return { mask: 'causal', queries: 'all', keys: 'all' }
  return holder < rank
    ? { mask: 'full', queries: 'all', keys: 'early' }
    : { mask: 'full', queries: 'late', keys: 'all' }
}

/**
 * Computes attention of all queries to one block. Queries that do not see it get a very low `logSums`.
 *
 * @param kept - the dropout mask of the probabilities in the view
 */
export function attendBlock(q: Tensor, k: Tensor, v: Tensor, view: View, kept?: Tensor): Partial {
  const [queries, keys, values] = [half(q, view.queries), half(k, view.keys), half(v, view.keys)]
  const { probabilities, logSums } = attend(queries, keys, view.mask)
  const output = tf.matMul(times(probabilities, kept), values)
  return {
    output: whole(output, view.queries, 0),
    logSums: whole(logSums, view.queries, UNSEEN),
  }
}

/** Merges two outputs, each weighted with its sum of exponentials. */
export function merge(a: Partial, b: Partial): Partial {
  const largest = tf.maximum(a.logSums, b.logSums)
  const [fromA, fromB] = [a, b].map(({ logSums }) => tf.exp(tf.sub(logSums, largest)))
  const total = tf.add(fromA!, fromB!)
  const output = tf.add(
    tf.mul(a.output, tf.div(fromA!, total)),
    tf.mul(b.output, tf.div(fromB!, total)),
  )
  return { output, logSums: tf.add(largest, tf.log(total)) }
}

export interface BlockGradients {
  readonly dq: Tensor
  readonly dk: Tensor
  readonly dv: Tensor
}

/** This rank's queries, and their inputs to the backward pass. */
export interface Queries {
  readonly q: Tensor
  readonly dy: Tensor
  /** Logarithms of the sums over all keys. */
  readonly logSums: Tensor
  /** Row sums of output times its gradient: [batch, heads, length, 1]. */
  readonly products: Tensor
}

/** Computes the contributions of one block to the gradients. */
export function blockGradients(
  { q, dy, logSums, products }: Queries,
  k: Tensor,
  v: Tensor,
  { mask, queries, keys }: View,
  kept?: Tensor,
): BlockGradients {
  const [ownQ, ownDy] = [half(q, queries), half(dy, queries)]
  const [ownK, ownV] = [half(k, keys), half(v, keys)]
  const probabilities = attendAgain(ownQ, ownK, mask, half(logSums, queries))
  const dProbabilities = times(tf.matMul(ownDy, ownV, false, true), kept)
  const dScores = scoreGradient(probabilities, dProbabilities, half(products, queries), q.shape[3]!)
  return {
    dq: whole(tf.matMul(dScores, ownK), queries, 0),
    dk: whole(tf.matMul(dScores, ownQ, true, false), keys, 0),
    dv: whole(tf.matMul(times(probabilities, kept), ownDy, true, false), keys, 0),
  }
}

/** Lower than any score, but finite. */
const UNSEEN = -1e30

/** Which half of a rank's positions. */
export type Part = 'all' | 'early' | 'late'

function half(x: Tensor, part: Part): Tensor {
  if (part === 'all') return x
  const [batch, heads, length, size] = x.shape as [number, number, number, number]
  const begin = part === 'early' ? 0 : length / 2
  return tf.slice(x, [0, 0, begin, 0], [batch, heads, length / 2, size])
}

function whole(x: Tensor, part: Part, filling: number): Tensor {
  if (part === 'all') return x
  const rest = tf.fill(x.shape, filling)
  return tf.concat(part === 'early' ? [x, rest] : [rest, x], 2)
}
