import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../../model/recording.ts'
import type { LinearLayer, LinearPasses } from '../../tfjs/backend.ts'
import { tf } from '../../tfjs/tfjs.ts'
import { currentEager, type Eager } from './eager.ts'
import type { Handle } from './binding-kernels.ts'
import { KernelPasses, LayerByLayer, placesIn } from './kernel-passes.ts'

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
  if (kernels === undefined) return new EagerPasses(eager, layers, x, needsInputGradient)
  const pass = (part: readonly LinearLayer[], input: Tensor, needed: boolean): LinearPasses =>
    new KernelPasses(eager, kernels, part, input, needed)
  if (isForOneCall(eager, layers, x)) return pass(layers, x, needsInputGradient)
  return eager.threads === 1 && x.shape[0] <= FEW_ROWS
    ? new LayerByLayer(layers, x, needsInputGradient, pass)
    : new EagerPasses(eager, layers, x, needsInputGradient)
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
 * values are handles, which this object frees.
 */
class EagerPasses implements LinearPasses {
  readonly output: Tensor
  readonly #eager: Eager
  readonly #layers: readonly LinearLayer[]
  readonly #needsInputGradient: boolean
  readonly #input: Tensor
  /** The outputs of all layers but the last. The output of the last layer is a tensor. */
  readonly #outputs: Handle[] = []
  /**
   * The gradient of each layer before its activation, kept from `backwardInput` to `backwardParameters`.
   */
  readonly #saved: Handle[] = []
  /** A clone of the gradient of the output, kept from `backwardInput` to `backwardParameters`. */
  #lastGradient: Tensor | undefined
  readonly #held = new Set<Handle>()

  constructor(
    eager: Eager,
    layers: readonly LinearLayer[],
    x: Tensor,
    needsInputGradient: boolean,
  ) {
    this.#eager = eager
    this.#layers = layers
    this.#needsInputGradient = needsInputGradient
    this.#input = tf.keep(tf.clone(x))
    let last = eager.handleOf(this.#input)
    layers.forEach((layer, i) => {
      last = this.#forward(layer, last)
      if (i < layers.length - 1) this.#outputs.push(this.#hold(last))
    })
    const width = layers.at(-1)!.bias.shape[0]!
    this.output = eager.take(last, [x.shape[0], width])
  }

  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
    return this.#walk(dy, (i, dz) => {
      this.#report(i, dz, onGradient)
      this.#drop(dz)
    })
  }

  backwardInput(dy: Tensor): Tensor | undefined {
    this.#lastGradient = tf.keep(tf.clone(dy))
    return this.#walk(this.#lastGradient, (i, dz) => {
      this.#saved[i] = dz
    })
  }

  backwardParameters(onGradient: GradientListener): void {
    for (let i = this.#layers.length - 1; i >= 0; i--) {
      this.#report(i, this.#saved[i]!, onGradient)
    }
  }

  dispose(): void {
    const eager = this.#eager
    for (const handle of this.#held) eager.free(handle)
    this.output.dispose()
    this.#lastGradient?.dispose()
    this.#input.dispose()
  }

  #forward({ weight, bias, activation }: LinearLayer, x: Handle): Handle {
    const eager = this.#eager
    const product = eager.matMul(x, eager.handleOf(weight.value))
    const sum = eager.addBias(product, eager.handleOf(bias.value))
    eager.free(product)
    if (activation === 'linear') return sum
    const output = eager.relu(sum)
    eager.free(sum)
    return output
  }

  /**
   * Computes the gradients of the inputs, from the last layer to the first.
   *
   * @param visit - receives the gradient of each layer before its activation, and may drop it
   */
  #walk(dy: Tensor, visit: (layer: number, dz: Handle) => void): Tensor | undefined {
    const eager = this.#eager
    const layers = this.#layers
    let gradient = eager.handleOf(dy)
    for (let i = layers.length - 1; i >= 0; i--) {
      const { activation, weight } = layers[i]!
      let dz = gradient
      if (activation === 'relu') {
        const output = this.#outputs[i] ?? eager.handleOf(this.output)
        dz = this.#hold(eager.reluGradient(gradient, output))
        this.#drop(gradient)
      }
      const isInput = i === 0
      const dx =
        isInput && !this.#needsInputGradient
          ? undefined
          : this.#hold(eager.matMul(dz, eager.handleOf(weight.value), false, true))
      visit(i, dz)
      if (dx === undefined) return undefined
      if (isInput) {
        this.#held.delete(dx)
        return eager.take(dx, this.#input.shape)
      }
      gradient = dx
    }
    return undefined
  }

  #report(i: number, dz: Handle, onGradient: GradientListener): void {
    const eager = this.#eager
    const { weight, bias } = this.#layers[i]!
    const input = i === 0 ? eager.handleOf(this.#input) : this.#outputs[i - 1]!
    const { kernels } = eager
    // With one thread, our kernels are as fast as TensorFlow. With several threads, TensorFlow is faster.
    if (kernels !== undefined && eager.threads === 1) {
      const places = placesIn(kernels, onGradient, [weight, bias])
      if (places !== undefined) {
        kernels.linearBackwardParameters(Int32Array.of(input, dz), places.values, places.adds)
        onGradient.memory!.written(bias)
        onGradient.memory!.written(weight)
        return
      }
    }
    onGradient(bias, eager.take(eager.biasGradient(dz), bias.shape))
    onGradient(weight, eager.take(eager.matMul(input, dz, true), weight.shape))
  }

  #hold(handle: Handle): Handle {
    this.#held.add(handle)
    return handle
  }

  #drop(handle: Handle): void {
    if (this.#held.delete(handle)) this.#eager.free(handle)
  }
}
