import { tsrError } from '@tsrun/core'
import type { NamedTensorMap, Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { GradientListener, Recording, RecordOptions } from '../autograd/recording.ts'
import { createTensor, viewOf } from '../backend/host-memory.ts'
import { tf } from '../backend/tensorflow.ts'
import type { Linear } from './linear.ts'

/**
 * Forward and backward passes of linear layers in a row, written out: the tape's gradients with
 * half the operations and none of its bookkeeping.
 *
 * The parameters must keep their values until the backward pass is done.
 *
 * @param x - [batch, inputs of the first layer]
 */
export function recordLinearStack(
  layers: readonly Linear[],
  x: Tensor,
  { needsInputGradient }: RecordOptions,
): Recording {
  const weights = layers.map(({ weight }) => weight.value)
  const activations = [tf.keep(tf.clone(x))]
  for (const layer of layers) activations.push(forwardLayer(activations.at(-1)!, layer))
  let state: 'recorded' | 'spent' | 'disposed' = 'recorded'
  return {
    value: activations.at(-1)!,
    backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
      if (state !== 'recorded') throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
      state = 'spent'
      let gradient = dy
      const free = () => {
        if (gradient !== dy) gradient.dispose()
      }
      for (let i = layers.length - 1; i >= 0; i--) {
        const layer = layers[i]!
        if (layer.weight.value !== weights[i]) {
          throw tsrError('ERR_TSR_STALE_RECORDING', { parameter: layer.weight.name })
        }
        const { dz, db } = backwardActivation(layer, activations[i + 1]!, gradient)
        onGradient(layer.bias, db)
        onGradient(layer.weight, matMul(activations[i]!, dz, true, false))
        const dx = i > 0 || needsInputGradient ? matMul(dz, weights[i]!, false, true) : undefined
        if (dz !== gradient) dz.dispose()
        free()
        if (dx === undefined) return undefined
        gradient = dx
      }
      return gradient
    },
    dispose(): void {
      if (state === 'disposed') return
      state = 'disposed'
      for (const activation of activations) activation.dispose()
    },
  }
}

/** activation(x W + b) in one kernel. */
function forwardLayer(x: Tensor, { weight, bias, activation }: Linear): Tensor {
  const [batch, inputs] = x.shape as [number, number]
  const outputs = bias.shape[0]!
  const y = kernel(
    '_FusedMatMul',
    {
      a: reshaped(x, [1, batch, inputs]),
      b: reshaped(weight.value, [1, inputs, outputs]),
      bias: bias.value,
    },
    { transposeA: false, transposeB: false, activation },
  )
  const value = tf.keep(tf.reshape(y, [batch, outputs]))
  y.dispose()
  return value
}

/** The gradient before the activation, and its sum over the batch: the gradient of the bias. */
function backwardActivation(
  { activation, bias }: Linear,
  y: Tensor,
  dy: Tensor,
): { dz: Tensor; db: Tensor } {
  const columns = bias.shape[0]!
  const sums = new Float64Array(columns)
  const dz =
    activation === 'relu'
      ? createTensor(dy.shape, (out) => {
          reluBackward(out, sums, viewOf(y), viewOf(dy))
        })
      : dy
  if (dz === dy) addRows(sums, viewOf(dy))
  const db = createTensor([columns], (out) => {
    out.set(sums)
  })
  return { dz, db }
}

function reluBackward(
  dz: Float32Array,
  sums: Float64Array,
  y: Float32Array,
  dy: Float32Array,
): void {
  const columns = sums.length
  for (let row = 0; row < dz.length; row += columns) {
    for (let column = 0; column < columns; column++) {
      const p = row + column
      const value = y[p]! > 0 ? dy[p]! : 0
      dz[p] = value
      sums[column]! += value
    }
  }
}

function addRows(sums: Float64Array, values: Float32Array): void {
  const columns = sums.length
  for (let row = 0; row < values.length; row += columns) {
    for (let column = 0; column < columns; column++) sums[column]! += values[row + column]!
  }
}

function matMul(a: Tensor, b: Tensor, transposeA: boolean, transposeB: boolean): Tensor {
  return tf.keep(kernel('BatchMatMul', { a, b }, { transposeA, transposeB }))
}

function kernel(
  name: string,
  inputs: Record<string, TensorInfo>,
  attrs: Record<string, string | boolean>,
): Tensor {
  return tf.engine().runKernel(name, inputs as unknown as NamedTensorMap, attrs)
}

function reshaped({ dataId, dtype }: Tensor, shape: number[]): TensorInfo {
  return { dataId, dtype, shape }
}
