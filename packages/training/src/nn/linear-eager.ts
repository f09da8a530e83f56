import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../model/recording.ts'
import type { Eager, Handle } from '../backend/tensorflow/eager.ts'
import { tf } from '../backend/tfjs.ts'
import type { LinearPasses } from './linear-passes.ts'
import type { Linear } from './linear.ts'

/**
 * The passes with operations of TensorFlow itself: a tensor of TensorFlow.js only for what leaves.
 * What passes between two layers is a handle, which the passes free.
 */
export class EagerPasses implements LinearPasses {
  readonly output: Tensor
  readonly #eager: Eager
  readonly #layers: readonly Linear[]
  readonly #needsInputGradient: boolean
  readonly #input: Tensor
  /** Of each layer but the last, whose output is a tensor. */
  readonly #outputs: Handle[] = []
  /** By layer: the gradient before its activation, between the halves of a backward pass. */
  readonly #saved: Handle[] = []
  /** The gradient of the output, where it is the caller's and has to live as long. */
  #lastGradient: Tensor | undefined
  /** Not freed yet. */
  readonly #held = new Set<Handle>()

  constructor(eager: Eager, layers: readonly Linear[], x: Tensor, needsInputGradient: boolean) {
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
      this.#announce(i, dz, onGradient)
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
      this.#announce(i, this.#saved[i]!, onGradient)
    }
  }

  dispose(): void {
    const eager = this.#eager
    for (const handle of this.#held) eager.free(handle)
    this.output.dispose()
    this.#lastGradient?.dispose()
    this.#input.dispose()
  }

  #forward({ weight, bias, activation }: Linear, x: Handle): Handle {
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
   * Gradients of the inputs, from the last layer to the first.
   *
   * @param visit - gets the gradient of each layer before its activation, which it may drop once it
   *   is of no more use to it
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

  #announce(i: number, dz: Handle, onGradient: GradientListener): void {
    const eager = this.#eager
    const { weight, bias } = this.#layers[i]!
    const input = i === 0 ? eager.handleOf(this.#input) : this.#outputs[i - 1]!
    onGradient(bias, eager.take(eager.biasGradient(dz), bias.shape))
    onGradient(weight, eager.take(eager.matMul(input, dz, true), weight.shape))
  }

  #hold(handle: Handle): Handle {
    this.#held.add(handle)
    return handle
  }

  /** Frees what is the passes' own. */
  #drop(handle: Handle): void {
    if (this.#held.delete(handle)) this.#eager.free(handle)
  }
}
