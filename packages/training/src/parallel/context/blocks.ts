import { attend, attendAgain, scoreGradient, times, type Mask } from '../../nn/causal-attention.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'

/*
 * Attention with an online softmax (Milakov & Gimelshein, 2018; Dao et al., FlashAttention, 2022). It
 * processes the keys and values of one rank at a time, as a block. Tensors have the shape [batch, heads,
 * length, size]. The log-sum-exp of the scores has the shape [batch, heads, length, 1].
 */

/** Attention over the keys seen so far: the output, and the log-sum-exp of the scores. */
export type Partial = Readonly<Record<'output' | 'logSums', Tensor>>

/** Which queries of this rank attend to which keys of another rank under causal masking. */
interface View {
  readonly mask: Mask
  readonly queries: 'all' | 'late'
  readonly keys: 'all' | 'early'
}

/**
 * Returns the part of the attention between this rank's queries and the keys of rank `holder`. Each
 * rank has an early and a late section of the sequence. If `holder` is lower, its early section
 * precedes both sections of this rank. If `holder` is higher, both its sections lie between the two
 * sections of this rank.
 */
export function viewOn(holder: number, rank: number): View {
  if (holder === rank) return { mask: 'causal', queries: 'all', keys: 'all' }
  return holder < rank
    ? { mask: 'full', queries: 'all', keys: 'early' }
    : { mask: 'full', queries: 'late', keys: 'all' }
}

/**
 * Computes attention of the queries to one block of keys. Queries that see no key of the block get
 * a `logSums` of -1e30.
 *
 * @param kept - the dropout mask of the attention probabilities
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

/** Merges the attention over two sets of keys. Each output is weighted with its sum of exponentials. */
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

/** The queries of this rank, with the tensors that their backward pass needs. */
export interface Queries {
  readonly q: Tensor
  readonly dy: Tensor
  /** The log-sum-exp of each query's scores over all keys. */
  readonly logSums: Tensor
  /** The dot product of each output row and its gradient: [batch, heads, length, 1]. */
  readonly products: Tensor
}

/** Computes the gradients that one block of keys contributes to queries, keys and values. */
export function blockGradients(
  { q, dy, logSums, products }: Queries,
  k: Tensor,
  v: Tensor,
  { mask, queries, keys }: View,
  kept?: Tensor,
) {
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

/** A score that stands for a masked key. It is finite, because -Infinity would produce NaN. */
const UNSEEN = -1e30

/** A part of a rank's positions: both sections, or only the early or the late one. */
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
