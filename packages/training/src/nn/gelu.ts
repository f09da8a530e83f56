import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs/tfjs.ts'

const [SLOPE, CUBE] = [2 * Math.sqrt(2 / Math.PI), 2 * Math.sqrt(2 / Math.PI) * 0.044715]

/**
 * x times the share of the normal distribution below x (Hendrycks & Gimpel, 2016), in the form that
 * GPT-2 has: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), which is x sigmoid(2 sqrt(2 / pi) (...)).
 */
export function gelu(x: Tensor): Tensor {
  return tf.customGrad((...args) => {
    const [input, save] = args as unknown as [Tensor, (tensors: Tensor[]) => void]
    const inner = tf.mul(input, tf.add(tf.mul(tf.square(input), CUBE), SLOPE))
    const share = tf.sigmoid(inner)
    save([input, share])
    return { value: tf.mul(input, share), gradFunc: gradient }
  })(x)
}

function gradient(dy: Tensor, saved: Tensor[]): Tensor {
  const [x, share] = saved as [Tensor, Tensor]
  const slope = tf.add(tf.mul(tf.square(x), 3 * CUBE), SLOPE)
  const bend = tf.mul(tf.mul(x, slope), tf.mul(share, tf.sub(1, share)))
  return tf.mul(dy, tf.add(share, bend))
}
