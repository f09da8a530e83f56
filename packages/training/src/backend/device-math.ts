import type { Tensor } from '@tensorflow/tfjs-core'
import { currentEager } from './tensorflow/eager.ts'
import { tf } from './tfjs.ts'

// Arithmetic on whole tensors, which nothing is fetched for: as vector-math.ts does it for arrays.
// Results outlive any tf.tidy; the caller disposes them.

/** x + y, of one shape. */
export function sum(x: Tensor, y: Tensor): Tensor {
  const eager = currentEager()
  if (eager === undefined) return tf.keep(tf.add(x, y))
  return eager.take(eager.add(eager.handleOf(x), eager.handleOf(y)), x.shape)
}

/** x + factor y, of one shape. */
export function sumScaled(x: Tensor, factor: number, y: Tensor): Tensor {
  const eager = currentEager()
  if (eager === undefined) return tf.tidy(() => tf.keep(tf.add(x, tf.mul(y, factor))))
  const by = eager.scalar(factor)
  const scaled = eager.multiply(eager.handleOf(y), by)
  const result = eager.add(eager.handleOf(x), scaled)
  for (const handle of [by, scaled]) eager.free(handle)
  return eager.take(result, x.shape)
}
