import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../model/recording.ts'
import type { BindingKernels } from '../backend/tensorflow/binding-kernels.ts'
import type { Eager, Handle } from '../backend/tensorflow/eager.ts'
import { tf } from '../backend/tfjs.ts'
import type { LinearPasses } from './linear-passes.ts'
import type { Linear } from './linear.ts'
import type { Parameter } from '../model/parameter.ts'

/**
 * The passes with a call of the binding's kernels for each. All gradients come at the end of a
 * backward pass.
 */
export class CalledPasses implements LinearPasses {
  readonly output: Tensor
  readonly #eager: Eager
  readonly #kernels: BindingKernels
  readonly #layers: readonly Linear[]
  readonly #relu: Uint8Array
  readonly #needsInputGradient: boolean
  readonly #input: Tensor
  /** Of each layer but the last, whose output is a tensor. */
  readonly #outputs: readonly Handle[]
  /** By layer: the gradient before its activation, between the halves of a backward pass. */
  #saved: readonly Handle[] = []

  constructor(
    eager: Eager,
    kernels: BindingKernels,
    layers: readonly Linear[],
    x: Tensor,
    needsInputGradient: boolean,
  ) {
    this.#eager = eager
    this.#kernels = kernels
    this.#layers = layers
    this.#relu = Uint8Array.from(layers, ({ activation }) => Number(activation === 'relu'))
    this.#needsInputGradient = needsInputGradient
    const inputs = [x, ...this.#weights(), ...layers.map(({ bias }) => bias.value)]
    const outputs = kernels.linearForward(Int32Array.from(eager.handlesOf(inputs)), this.#relu)
    this.#input = tf.keep(tf.clone(x))
    this.#outputs = outputs.slice(0, -1)
    this.output = eager.take(outputs.at(-1)!, [x.shape[0], layers.at(-1)!.bias.shape[0]!])
  }

  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
    const inputs = [...this.#eager.handlesOf([this.#input, dy]), ...this.#layersForBackward()]
    const run = (sums: readonly Handle[]): Handle[] | false =>
      this.#kernels.linearBackward(
        Int32Array.from([...inputs, ...sums]),
        this.#relu,
        this.#needsInputGradient,
      )
    const sums = this.#sumsOf(onGradient)
    const added = sums !== undefined && run(this.#eager.handlesOf(sums))
    if (added !== false) return this.#inputGradient(added[0])
    const results = run([]) as Handle[]
    const count = 2 * this.#layers.length
    const dx = this.#inputGradient(results[count])
    try {
      this.#announce(results.slice(0, count), onGradient)
    } catch (error) {
      dx?.dispose()
      throw error
    }
    return dx
  }

  backwardInput(dy: Tensor): Tensor | undefined {
    const inputs = Int32Array.of(this.#eager.handleOf(dy), ...this.#layersForBackward())
    const results = this.#kernels.linearBackwardInput(inputs, this.#relu, this.#needsInputGradient)
    this.#saved = results.slice(0, this.#layers.length)
    return this.#inputGradient(results[this.#layers.length])
  }

  backwardParameters(onGradient: GradientListener): void {
    const inputs = [this.#eager.handleOf(this.#input), ...this.#saved, ...this.#outputs]
    this.#announce(this.#kernels.linearBackwardParameters(Int32Array.from(inputs)), onGradient)
  }

  dispose(): void {
    for (const handle of [...this.#outputs, ...this.#saved]) this.#eager.free(handle)
    this.output.dispose()
    this.#input.dispose()
  }

  /** Weights and outputs, as the kernels take them. */
  #layersForBackward(): Handle[] {
    const handles = this.#eager.handlesOf([...this.#weights(), this.output])
    const output = handles.pop()!
    return [...handles, ...this.#outputs, output]
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

  /** @param results - gradients of the weights, of the biases; what is not handed over is freed */
  #announce(results: readonly Handle[], onGradient: GradientListener): void {
    const layers = this.#layers
    const left = new Set(results)
    const hand = (parameter: Parameter, handle: Handle): void => {
      left.delete(handle)
      onGradient(parameter, this.#eager.take(handle, parameter.shape))
    }
    try {
      for (let i = layers.length - 1; i >= 0; i--) {
        const { weight, bias } = layers[i]!
        hand(bias, results[layers.length + i]!)
        hand(weight, results[i]!)
      }
    } finally {
      for (const handle of left) this.#eager.free(handle)
    }
  }

  #inputGradient(handle: Handle | undefined): Tensor | undefined {
    return handle === undefined ? undefined : this.#eager.take(handle, this.#input.shape)
  }

  #weights(): Tensor[] {
    return this.#layers.map(({ weight }) => weight.value)
  }
}
