import { messageOf, tsrError } from '@tsrun/core'
import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core'
import type { Parameter } from '../model/parameter.ts'
import type { Recording, RecordOptions } from '../model/recording.ts'
import { tf } from '../tfjs/tfjs.ts'
import { withGradients } from './tape.ts'

type RecordOnTape = (
  forward: (x: Tensor) => Tensor,
  x: Tensor,
  parameters: readonly Parameter[],
  options: RecordOptions,
) => Recording

/**
 * Checks the private parts of TensorFlow.js that recordings rely on. Computes the gradients of a small
 * function by a recording and by tf.grads, and compares the bits. The function uses one tensor twice, and its
 * recording has a node of `withGradients`.
 *
 * @throws ERR_TSR_AUTOGRAD when they differ
 */
export function testTape(record: RecordOnTape): void {
  let problem: string | undefined
  const tensorsBefore = tf.memory().numTensors
  try {
    tf.tidy(() => {
      problem = compare(record)
    })
    if (tf.memory().numTensors !== tensorsBefore) problem ??= 'a recording leaks tensors'
  } catch (cause) {
    throw autogradError(messageOf(cause), { cause })
  }
  if (problem !== undefined) throw autogradError(problem)
}

function compare(record: RecordOnTape): string | undefined {
  const x = tf.tensor2d([0.5, -1, 2, 3, -0.25, 1], [2, 3])
  const value = tf.tensor2d([1, -2, 0.5, 0.75, -1, 3, 2, 0.1, -0.3], [3, 3])
  const weight = { name: 'weight', shape: [3, 3], value }
  const f = (h: Tensor, w: Tensor, square: (y: Tensor) => Tensor) => {
    const y = square(tf.relu(tf.matMul(h as Tensor2D, w as Tensor2D)))
    return tf.add(tf.matMul(y as Tensor2D, w as Tensor2D), tf.sigmoid(y))
  }
  const [dx, dw] = tf.grads((h: Tensor, w: Tensor) => f(h, w, tf.square))([x, value])
  const forward = (h: Tensor) => f(h, weight.value, squareNode)
  const recording = record(forward, x, [weight], { needsInputGradient: true })
  const received: Tensor[] = []
  const input = recording.backward(tf.onesLike(recording.value), (_, gradient) => {
    received.push(gradient)
  })
  const problem =
    received.length === 1 && isEqual(input!, dx!) && isEqual(received[0]!, dw!)
      ? undefined
      : 'its gradients differ from tf.grads'
  for (const tensor of [...received, input!]) tensor.dispose()
  recording.dispose()
  return problem
}

/** tf.square as a node of `withGradients`. */
function squareNode(x: Tensor): Tensor {
  return withGradients([x], () => ({
    value: tf.square(x),
    saved: [x],
    gradients: (dy, [saved]) => [tf.mul(dy, tf.mul(saved!, 2))],
  }))
}

function isEqual(a: Tensor, b: Tensor): boolean {
  const expected = b.dataSync()
  return a.dataSync().every((value, i) => value === expected[i])
}

function autogradError(problem: string, options?: ErrorOptions) {
  return tsrError('ERR_TSR_AUTOGRAD', { version: tf.version_core, problem }, options)
}
