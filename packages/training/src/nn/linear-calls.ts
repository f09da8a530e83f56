import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../autograd/recording.ts'
import type { Eager, Handle } from '../backend/eager.ts'
import { tf } from '../backend/tensorflow.ts'
import { linearFunctions, type LinearFunctions } from './linear-functions.ts'
import type { LinearPasses } from './linear-passes.ts'
import type { Linear } from './linear.ts'

/**
 * The passes with a function of TensorFlow's for each: its operations follow one another without
 * JavaScript in between. All gradients come at the end of a backward pass.
 */
export class CalledPasses implements LinearPasses {
  readonly output: Tensor
  readonly #eager: Eager
  readonly #functions: LinearFunctions
  readonly #layers: readonly Linear[]
  readonly #needsInputGradient: boolean
  readonly #input: Tensor
  /** Of each layer but the last, whose output is a tensor. */
  readonly #outputs: readonly Handle[]
  /** By layer: the gradient before its activation, between the halves of a backward pass. */
  #saved: readonly Handle[] = []

  constructor(eager: Eager, layers: readonly Linear[], x: Tensor, needsInputGradient: boolean) {
    this.#eager = eager
    this.#functions = linearFunctions(eager, layers, needsInputGradient)
    this.#layers = layers
    this.#needsInputGradient = needsInputGradient
    this.#input = tf.keep(tf.clone(x))
    const inputs = [this.#input, ...this.#weights(), ...layers.map(({ bias }) => bias.value)]
    const outputs = eager.call(this.#functions.forward, eager.handlesOf(inputs), layers.length)
    this.#outputs = outputs.slice(0, -1)
    this.output = eager.take(outputs.at(-1)!, [x.shape[0], layers.at(-1)!.bias.shape[0]!])
  }

  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
    const count = 2 * this.#layers.length
    const sums = this.#sumsOf(onGradient)
    const { backward, backwardSum } = this.#functions
    const results = this.#call(sums === undefined ? backward : backwardSum, dy, count, sums)
    if (sums === undefined) this.#announce(results.slice(0, count), onGradient)
    else
      sums.forEach((sum, i) => {
        this.#eager.replace(sum, results[i]!)
      })
    return this.#inputGradient(results[count])
  }

  backwardInput(dy: Tensor): Tensor | undefined {
    const count = this.#layers.length
    const results = this.#call(this.#functions.backwardInput, dy, count)
    this.#saved = results.slice(0, count)
    return this.#inputGradient(results[count])
  }

  backwardParameters(onGradient: GradientListener): void {
    const eager = this.#eager
    const [input, output] = eager.handlesOf([this.#input, this.output])
    const inputs = [input!, ...this.#saved, ...this.#outputs, output!]
    const count = 2 * this.#layers.length
    this.#announce(eager.call(this.#functions.backwardParameters, inputs, count), onGradient)
  }

  dispose(): void {
    for (const handle of [...this.#outputs, ...this.#saved]) this.#eager.free(handle)
    this.output.dispose()
    this.#input.dispose()
  }

  /** @param count - of results besides the gradient of the input */
  #call(name: string, dy: Tensor, count: number, sums: readonly Tensor[] = []): readonly Handle[] {
    const eager = this.#eager
    const tensors = eager.handlesOf([this.#input, dy, ...this.#weights(), this.output])
    const output = tensors.pop()!
    const inputs = [...tensors, ...this.#outputs, output, ...eager.handlesOf(sums)]
    return eager.call(name, inputs, this.#needsInputGradient ? count + 1 : count)
  }

  /** Of the weights, then of the biases, where there is one of each to add to. */
  #sumsOf({ sums }: GradientListener): readonly Tensor[] | undefined {
    if (sums === undefined) return undefined
    const parameters = [
      ...this.#layers.map(({ weight }) => weight),
      ...this.#layers.map(({ bias }) => bias),
    ]
    const names = new Set(parameters.map(({ name }) => name))
    const found = parameters.flatMap(({ name }) => sums.get(name) ?? [])
    const isWhole = names.size === parameters.length && found.length === parameters.length
    return isWhole && found.every((sum) => this.#eager.isAlone(sum)) ? found : undefined
  }

  #announce(gradients: readonly Handle[], onGradient: GradientListener): void {
    const eager = this.#eager
    const layers = this.#layers
    for (let i = layers.length - 1; i >= 0; i--) {
      const { weight, bias } = layers[i]!
      onGradient(bias, eager.take(gradients[layers.length + i]!, bias.shape))
      onGradient(weight, eager.take(gradients[i]!, weight.shape))
    }
  }

  #inputGradient(handle: Handle | undefined): Tensor | undefined {
    return handle === undefined ? undefined : this.#eager.take(handle, this.#input.shape)
  }

  #weights(): Tensor[] {
    return this.#layers.map(({ weight }) => weight.value)
  }
}
