import { messageOf, tsrError } from '@tsrun/core'
import type { Recording, RecordOptions } from '../model/recording.ts'
import type { Parameter } from '../model/parameter.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { withGradients } from './tape.ts'

type RecordOnTape = (
  forward: (x: Tensor) => Tensor,
  x: Tensor,
  parameters: readonly Parameter[],
  options: RecordOptions,
) => Recording

/**
 * Checks the private parts of TensorFlow.js that recordings rely on: records a small function, and
 * compares its gradients with the results of tf.grads. The function uses one tensor twice, and its
 * recording has a node of `withGradients`.
 *
 * @throws ERR_TSR_AUTOGRAD when the gradients differ or the recording leaks tensors
 */
export function testTape(record: RecordOnTape): void {
  const fail = (problem: string, options?: ErrorOptions) =>
    tsrError('ERR_TSR_AUTOGRAD', { version: tf.version_core, problem }, options)
  const before = tf.memory().numTensors
  let isEqual: boolean
  try {
    isEqual = tf.tidy(() => compare(record))
  } catch (cause) {
    throw fail(messageOf(cause), { cause })
  }
  if (!isEqual) throw fail('its gradients differ from tf.grads')
  if (tf.memory().numTensors !== before) throw fail('a recording leaks tensors')
}

function compare(record: RecordOnTape): boolean {
  const x = tf.tensor2d([0.5, -1, 2, 3, -0.25, 1], [2, 3])
  const value = tf.tensor2d([1, -2, 0.5, 0.75, -1, 3, 2, 0.1, -0.3], [3, 3])
  const weight = { name: 'weight', shape: [3, 3], value }
  const f = (h: Tensor, w: Tensor, square: (y: Tensor) => Tensor): Tensor => {
    const y = square(tf.relu(tf.matMul(h, w)))
    return tf.add(tf.matMul(y, w), tf.sigmoid(y))
  }
  const expected = tf.grads((h: Tensor, w: Tensor) => f(h, w, tf.square))([x, value])
  const recording = record((h) => f(h, value, squareNode), x, [weight], {
    needsInputGradient: true,
  })
  const found: Tensor[] = []
  const dx = recording.backward(tf.onesLike(recording.value), (_, gradient) => {
    found.push(gradient)
  })
  found.unshift(dx!)
  const bitsOf = (gradients: readonly Tensor[]) =>
    gradients.map((gradient) => gradient.dataSync().join()).join(';')
  const isEqual = bitsOf(found) === bitsOf(expected)
  tf.dispose(found)
  recording.dispose()
  return isEqual
}

/** tf.square as a node of `withGradients`. */
function squareNode(x: Tensor): Tensor {
  return withGradients([x], () => ({
    value: tf.square(x),
    saved: [x],
    gradients: (dy, [saved]) => [tf.mul(dy, tf.mul(saved!, 2))],
  }))
}
