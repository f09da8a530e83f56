import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs/tfjs.ts'
import { attend, scoreGradient } from './attention-block.ts'

type Three = readonly [Tensor, Tensor, Tensor]

/** From queries, keys and values, each [batch, heads, length, size], to as many outputs, and back. */
export interface AttentionCore {
  /** @returns the output and, first of all, what `backward` needs of it */
  forward(queries: Tensor, keys: Tensor, values: Tensor): { output: Tensor; saved: Tensor[] }

  /** The gradients of queries, keys and values. */
  backward(dy: Tensor, saved: readonly Tensor[]): Three
}

/**
 * softmax(q k' / sqrt(size)) v, where each position sees itself and those before it (Vaswani et al.,
 * 2017). Holds the shares [batch, heads, length, length] for the backward pass.
 */
export const causalAttention: AttentionCore = {
  forward(q, k, v) {
    const { shares } = attend(q, k, 'causal')
    const output = tf.matMul(shares, v)
    return { output, saved: [q, k, v, shares, output] }
  },
  backward(dy, saved) {
    const [q, k, v, shares, output] = saved as [Tensor, Tensor, Tensor, Tensor, Tensor]
    const products = tf.sum(tf.mul(dy, output), -1, true)
    const dShares = tf.matMul(dy, v, false, true)
    const dScores = scoreGradient(shares, dShares, products, q.shape[3]!)
    return [
      tf.matMul(dScores, k),
      tf.matMul(dScores, q, true, false),
      tf.matMul(shares, dy, true, false),
    ]
  },
}
