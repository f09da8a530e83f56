import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { reachesTensors } from '../backend/bridge/select.ts'
import { createTensor, viewOf } from '../backend/host-memory.ts'
import { tf } from '../backend/tfjs.ts'
import { runKernel } from '../backend/tfjs-kernels.ts'
import type { LinearPasses } from './linear-passes.ts'
import type { Linear } from './linear.ts'

/** The passes with kernels of TensorFlow.js, on every backend. */
export function tensorPasses(
  layers: readonly Linear[],
  x: Tensor,
  needsInputGradient: boolean,
): LinearPasses {
  const activations = [tf.keep(tf.clone(x))]
  for (const layer of layers) activations.push(forwardLayer(activations.at(-1)!, layer))
  /** By layer: the gradient before its activation, between the halves of a backward pass. */
  const saved: Tensor[] = []
  return {
    output: activations.at(-1)!,
    backward(dy, onGradient) {
      let gradient = dy
      const free = () => {
        if (gradient !== dy) gradient.dispose()
      }
      for (let i = layers.length - 1; i >= 0; i--) {
        const layer = layers[i]!
        const dz = activationGradient(layer, activations[i + 1]!, gradient)
        onGradient(layer.bias, biasGradient(layer, dz))
        onGradient(layer.weight, matMul(activations[i]!, dz, true, false))
        const dx =
          i > 0 || needsInputGradient ? matMul(dz, layer.weight.value, false, true) : undefined
        if (dz !== gradient) dz.dispose()
        free()
        if (dx === undefined) return undefined
        gradient = dx
      }
      return gradient
    },
    backwardInput(dy) {
      let gradient = dy
      for (let i = layers.length - 1; i >= 0; i--) {
        const layer = layers[i]!
        const dz = activationGradient(layer, activations[i + 1]!, gradient)
        if (dz !== gradient && gradient !== dy) gradient.dispose()
        // the caller's gradient lives no longer than this call
        saved[i] = dz === dy ? tf.keep(tf.clone(dz)) : dz
        if (i === 0 && !needsInputGradient) return undefined
        gradient = matMul(saved[i]!, layer.weight.value, false, true)
      }
      return gradient
    },
    backwardParameters(onGradient) {
      for (let i = layers.length - 1; i >= 0; i--) {
        const layer = layers[i]!
        onGradient(layer.bias, biasGradient(layer, saved[i]!))
        onGradient(layer.weight, matMul(activations[i]!, saved[i]!, true, false))
      }
    },
    dispose() {
      for (const activation of activations) activation.dispose()
      for (const dz of saved) dz.dispose()
    },
  }
}

/** activation(x W + b) in one kernel. */
function forwardLayer(x: Tensor, { weight, bias, activation }: Linear): Tensor {
  const [batch, inputs] = x.shape as [number, number]
  const outputs = bias.shape[0]!
  const y = runKernel(
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

/** The gradient before the activation. Kernels, as a branch a value is mispredicted half the time. */
function activationGradient({ activation }: Linear, y: Tensor, dy: Tensor): Tensor {
  if (activation === 'linear') return dy
  const positive = runKernel('Step', { x: y }, { alpha: 0 })
  const dz = tf.keep(runKernel('Multiply', { a: positive, b: dy }))
  positive.dispose()
  return dz
}

/** The sum over the batch, in double precision where the values are in reach. */
function biasGradient({ bias }: Linear, dz: Tensor): Tensor {
  if (!reachesTensors()) return tf.keep(tf.sum(dz, 0))
  const sums = new Float64Array(bias.shape[0]!)
  return createTensor(bias.shape, (out) => {
    addRows(sums, viewOf(dz))
    out.set(sums)
  })
}

function addRows(sums: Float64Array, values: Float32Array): void {
  const columns = sums.length
  for (let row = 0; row < values.length; row += columns) {
    for (let column = 0; column < columns; column++) sums[column]! += values[row + column]!
  }
}

function matMul(a: Tensor, b: Tensor, transposeA: boolean, transposeB: boolean): Tensor {
  return tf.keep(runKernel('BatchMatMul', { a, b }, { transposeA, transposeB }))
}

function reshaped({ dataId, dtype }: Tensor, shape: number[]): TensorInfo {
  return { dataId, dtype, shape }
}
