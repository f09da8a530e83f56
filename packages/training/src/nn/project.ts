import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs/tfjs.ts'

/** Runs what takes a matrix on the last axis of a tensor of any rank. */
export function onRows(x: Tensor, compute: (rows: Tensor) => Tensor): Tensor {
  if (x.rank === 2) return compute(x)
  const y = compute(tf.reshape(x, [-1, x.shape.at(-1)!]))
  return tf.reshape(y, [...x.shape.slice(0, -1), y.shape.at(-1)!])
}
