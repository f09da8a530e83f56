import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { isHostAccessible } from '../backend/current.ts'
import { createTensor, viewOf } from '../backend/host-memory.ts'
import type { GradientListener } from '../model/recording.ts'
import type { LinearLayer, LinearPasses } from '../tfjs/backend.ts'
import { runKernel, tf } from '../tfjs/tfjs.ts'

/** Passes of a stack of linear layers by kernels of TensorFlow.js, without the tape, on any backend. */
export function kernelPasses(
  layers: readonly LinearLayer[],
  x: Tensor,
  needsInputGradient: boolean,
): LinearPasses {
  const activations = [tf.keep(tf.clone(x))]
  for (const layer of layers) activations.push(forwardLayer(activations.at(-1)!, layer))
  /** The gradient of each layer before its activation, kept between the two halves of a backward pass. */
  const saved: Tensor[] = []
  const report = (i: number, dz: Tensor, onGradient: GradientListener) => {
    const { bias, weight } = layers[i]!
    onGradient(bias, biasGradient(layers[i]!, dz))
    onGradient(weight, matMul(activations[i]!, dz, true, false))
  }
  /** Visits the layers with their gradients, which it disposes unless `visit` returns true. */
  const walk = (dy: Tensor, visit: (i: number, dz: Tensor) => boolean): Tensor | undefined => {
    let gradient = dy
    for (let i = layers.length - 1; i >= 0; i--) {
      const dz = activationGradient(layers[i]!, activations[i + 1]!, gradient)
      const isKept = visit(i, dz)
      const isNeeded = i > 0 || needsInputGradient
      const dx = isNeeded ? matMul(dz, layers[i]!.weight.value, false, true) : undefined
      if (gradient !== dz && gradient !== dy) gradient.dispose()
      if (!isKept && dz !== dy) dz.dispose()
      if (dx === undefined) return undefined
      gradient = dx
    }
    return gradient
  }
  return {
    output: activations.at(-1)!,
    backward: (dy, onGradient) =>
      walk(dy, (i, dz) => {
        report(i, dz, onGradient)
        return false
      }),
    backwardInput: (dy) =>
      walk(dy, (i, dz) => {
        // Clone `dy`, because the caller may dispose it after this call.
        saved[i] = dz === dy ? tf.keep(tf.clone(dz)) : dz
        return true
      }),
    backwardParameters(onGradient) {
      for (let i = layers.length - 1; i >= 0; i--) report(i, saved[i]!, onGradient)
    },
    dispose() {
      for (const activation of activations) activation.dispose()
      for (const dz of saved) dz.dispose()
    },
  }
}

/** Computes activation(x W + b) in one kernel. */
function forwardLayer(x: Tensor, { weight, bias, activation }: LinearLayer): Tensor {
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

/**
 * Returns the gradient before the activation. Uses kernels, because a JavaScript branch for each
 * value would be mispredicted half of the time.
 */
function activationGradient({ activation }: LinearLayer, y: Tensor, dy: Tensor): Tensor {
  if (activation === 'linear') return dy
  const positive = runKernel('Step', { x: y }, { alpha: 0 })
  const dz = tf.keep(runKernel('Multiply', { a: positive, b: dy }))
  positive.dispose()
  return dz
}

/** Sums the gradient over the batch, in double precision if the host can access the values. */
function biasGradient({ bias }: LinearLayer, dz: Tensor): Tensor {
  if (!isHostAccessible()) return tf.keep(tf.sum(dz, 0))
  const columns = bias.shape[0]!
  const sums = new Float64Array(columns)
  return createTensor(bias.shape, (out) => {
    const values = viewOf(dz)
    for (let row = 0; row < values.length; row += columns) {
      for (let column = 0; column < columns; column++) sums[column]! += values[row + column]!
    }
    out.set(sums)
  })
}

function matMul(a: Tensor, b: Tensor, transposeA: boolean, transposeB: boolean): Tensor {
  return tf.keep(runKernel('BatchMatMul', { a, b }, { transposeA, transposeB }))
}

function reshaped({ dataId, dtype }: Tensor, shape: number[]): TensorInfo {
  return { dataId, dtype, shape }
}
