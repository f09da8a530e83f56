import {
  type GradientListener,
  type LinearLayer,
  type LinearPasses,
  type Tensor,
  tf,
} from '@tsrun/training/backends'
import { currentEager, type Eager } from './eager.ts'
import type { Handle } from './binding-kernels.ts'
import { kernelPasses, layerByLayer, placesIn } from './kernel-passes.ts'

/**
 * The largest number of multiplications for a forward pass in one call (0.3 ms), if TensorFlow
 * would use several threads.
 */
const MOST_MULTIPLICATIONS = 2 ** 24
/** The largest number of weights for a pass in one call (4 MiB). */
const MOST_ELEMENTS = 2 ** 20
/**
 * Up to this number of rows, our kernels are faster than TensorFlow for weights of any size; see
 * `few-rows.h`.
 */
const FEW_ROWS = 32

export function linearPasses(
  layers: readonly LinearLayer[],
  x: Tensor,
  needsInputGradient: boolean,
): LinearPasses {
  const eager = currentEager()!
  const { kernels } = eager
  if (kernels !== undefined) {
    const pass: typeof linearPasses = (...given) => kernelPasses(eager, kernels, ...given)
    if (isForOneCall(eager, layers, x)) return pass(layers, x, needsInputGradient)
    if (eager.threads === 1 && x.shape[0] <= FEW_ROWS) {
      return layerByLayer(layers, x, needsInputGradient, pass)
    }
  }
  return eagerPasses(eager, layers, x, needsInputGradient)
}

/**
 * Whether to compute each pass in one call, which reports all gradients at the end. For small
 * layers, that delays no communication: their gradients would not fill a bucket earlier.
 */
function isForOneCall({ threads }: Eager, layers: readonly LinearLayer[], x: Tensor): boolean {
  const elements = layers.reduce((sum, { weight }) => sum + weight.value.size, 0)
  if (elements > MOST_ELEMENTS) return false
  return threads === 1 || elements * x.shape[0] <= MOST_MULTIPLICATIONS
}

/**
 * Passes made of TensorFlow operations. The results are tensors of TensorFlow.js. Intermediate
 * values are handles, which the passes free.
 */
function eagerPasses(
  eager: Eager,
  layers: readonly LinearLayer[],
  x: Tensor,
  needsInputGradient: boolean,
): LinearPasses {
  const input = tf.keep(tf.clone(x))
  // Handles of all outputs but the last, which is a tensor.
  const outputs: Handle[] = []
  /**
   * The gradient of each layer before its activation, kept from `backwardInput` to `backwardParameters`.
   */
  const saved: Handle[] = []
  /** A clone of the gradient of the output, kept from `backwardInput` to `backwardParameters`. */
  let lastGradient: Tensor | undefined
  const held = new Set<Handle>()

  const hold = (handle: Handle) => {
    held.add(handle)
    return handle
  }
  const drop = (handle: Handle) => {
    if (held.delete(handle)) eager.free(handle)
  }
  const forward = ({ weight, bias, activation }: LinearLayer, handle: Handle) => {
    const product = eager.matMul(handle, eager.handleOf(weight.value))
    const sum = eager.addBias(product, eager.handleOf(bias.value))
    eager.free(product)
    if (activation === 'linear') return sum
    const rectified = eager.relu(sum)
    eager.free(sum)
    return rectified
  }

  let last = eager.handleOf(input)
  layers.forEach((layer, i) => {
    last = forward(layer, last)
    if (i < layers.length - 1) outputs.push(hold(last))
  })
  const output = eager.take(last, [x.shape[0], layers.at(-1)!.bias.shape[0]!])

  /**
   * Computes the gradients of the inputs, from the last layer to the first.
   *
   * @param visit - receives the gradient of each layer before its activation, and may drop it
   */
  const walk = (dy: Tensor, visit: (layer: number, dz: Handle) => void) => {
    let gradient = eager.handleOf(dy)
    for (let i = layers.length - 1; i >= 0; i--) {
      const { activation, weight } = layers[i]!
      let dz = gradient
      if (activation === 'relu') {
        dz = hold(eager.reluGradient(gradient, outputs[i] ?? eager.handleOf(output)))
        drop(gradient)
      }
      const isInput = i === 0
      const dx =
        isInput && !needsInputGradient
          ? undefined
          : hold(eager.matMul(dz, eager.handleOf(weight.value), false, true))
      visit(i, dz)
      if (dx === undefined) return undefined
      if (isInput) {
        held.delete(dx)
        return eager.take(dx, input.shape)
      }
      gradient = dx
    }
    return undefined
  }

  const report = (i: number, dz: Handle, onGradient: GradientListener) => {
    const { weight, bias } = layers[i]!
    const from = i === 0 ? eager.handleOf(input) : outputs[i - 1]!
    const { kernels } = eager
    // With one thread, our kernels are as fast as TensorFlow. With several threads, TensorFlow is faster.
    if (kernels !== undefined && eager.threads === 1) {
      const places = placesIn(kernels, onGradient, [weight, bias])
      if (places !== undefined) {
        kernels.linearBackwardParameters(Int32Array.of(from, dz), places.values, places.adds)
        onGradient.memory!.written(bias)
        onGradient.memory!.written(weight)
        return
      }
    }
    onGradient(bias, eager.take(eager.biasGradient(dz), bias.shape))
    onGradient(weight, eager.take(eager.matMul(from, dz, true), weight.shape))
  }

  return {
    output,
    backward: (dy, onGradient) =>
      walk(dy, (i, dz) => {
        report(i, dz, onGradient)
        drop(dz)
      }),
    backwardInput(dy) {
      lastGradient = tf.keep(tf.clone(dy))
      return walk(lastGradient, (i, dz) => {
        saved[i] = dz
      })
    },
    backwardParameters(onGradient) {
      for (let i = layers.length - 1; i >= 0; i--) report(i, saved[i]!, onGradient)
    },
    dispose() {
      for (const handle of held) eager.free(handle)
      output.dispose()
      lastGradient?.dispose()
      input.dispose()
    },
  }
}
