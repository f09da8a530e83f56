import { type Tensor, type TensorBackend, tf } from '@tsrun/training/backends'
import { currentEager } from './eager.ts'

type Backend = Required<TensorBackend>

export const reluGradient: Backend['reluGradient'] = (dy, output) => {
  const eager = currentEager()!
  return eager.takeScoped(eager.reluGradient(dy, output), dy.shape)
}

export const gate: Backend['gate'] = (x, linear, cubic) => {
  const gates = tf.sigmoid(tf.mul(x, polynomial(x, linear, cubic)))
  return {
    value: tf.mul(x, gates),
    saved: [x, gates],
    gradients(dy, saved) {
      const eager = currentEager()!
      const [x, gates] = saved as [Tensor, Tensor]
      const slopes = tf.mul(x, polynomial(x, linear, 3 * cubic))
      const bend = eager.sigmoidGradient(gates, slopes)
      return [tf.mul(dy, tf.add(gates, eager.takeScoped(bend, x.shape)))]
    },
  }
}

/** Returns linear + square x^2 for each value. */
function polynomial(x: Tensor, linear: number, square: number): Tensor {
  return square === 0 ? tf.scalar(linear) : tf.add(tf.mul(tf.square(x), square), linear)
}
