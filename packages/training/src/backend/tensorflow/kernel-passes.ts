import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from '../../model/parameter.ts'
import { placesOf, type GradientListener, type GradientPlaces } from '../../model/recording.ts'
import type { LinearLayer, LinearPasses } from '../../tfjs/backend.ts'
import { tf } from '../../tfjs/tfjs.ts'
import type { BindingKernels, Handle } from './binding-kernels.ts'
import type { Eager } from './eager.ts'

/** Runs each pass in one call of a binding kernel. Reports all gradients at the end of the pass. */
export class KernelPasses implements LinearPasses {
  readonly output: Tensor
  readonly #eager: Eager
  readonly #kernels: BindingKernels
  readonly #layers: readonly LinearLayer[]
  readonly #relu: Uint8Array
  readonly #needsInputGradient: boolean
  readonly #input: Tensor
  /** The outputs of all layers but the last. The output of the last layer is a tensor. */
  readonly #outputs: readonly Handle[]
  /**
   * The gradient of each layer before its activation, kept from `backwardInput` to `backwardParameters`.
   */
  #saved: readonly Handle[] = []

  constructor(
    eager: Eager,
    kernels: BindingKernels,
    layers: readonly LinearLayer[],
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
    const run = (sums: readonly Handle[], places?: GradientPlaces): Handle[] | false =>
      this.#kernels.linearBackward(
        Int32Array.from([...inputs, ...sums]),
        this.#relu,
        this.#needsInputGradient,
        places?.values,
        places?.adds,
      )
    const places = this.#placesOf(onGradient)
    if (places !== undefined) {
      const [dx] = run([], places) as Handle[]
      const inputGradient = this.#inputGradient(dx)
      this.#reportWritten(onGradient, inputGradient)
      return inputGradient
    }
    const sums = this.#sumsOf(onGradient)
    const added = sums !== undefined && run(this.#eager.handlesOf(sums))
    if (added !== false) return this.#inputGradient(added[0])
    const results = run([]) as Handle[]
    const count = 2 * this.#layers.length
    const dx = this.#inputGradient(results[count])
    try {
      this.#report(results.slice(0, count), onGradient)
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
    const eager = this.#eager
    const inputs = Int32Array.of(eager.handleOf(this.#input), ...this.#saved, ...this.#outputs)
    const places = this.#placesOf(onGradient)
    const results = this.#kernels.linearBackwardParameters(inputs, places?.values, places?.adds)
    if (places === undefined) this.#report(results, onGradient)
    else this.#reportWritten(onGradient)
  }

  dispose(): void {
    for (const handle of [...this.#outputs, ...this.#saved]) this.#eager.free(handle)
    this.output.dispose()
    this.#input.dispose()
  }

  /** Returns the weights and outputs in the argument order of the kernels. */
  #layersForBackward(): Handle[] {
    const handles = this.#eager.handlesOf([...this.#weights(), this.output])
    const output = handles.pop()!
    return [...handles, ...this.#outputs, output]
  }

  /** Returns arrays for the gradients of the weights, then of the biases. */
  #placesOf(onGradient: GradientListener): GradientPlaces | undefined {
    return placesIn(this.#kernels, onGradient, this.#parameters())
  }

  /** @param held - disposed if the listener throws */
  #reportWritten({ memory }: GradientListener, held?: Tensor): void {
    try {
      for (const { weight, bias } of this.#layers.toReversed()) {
        memory!.written(bias)
        memory!.written(weight)
      }
    } catch (error) {
      held?.dispose()
      throw error
    }
  }

  #parameters(): Parameter[] {
    return [...this.#layers.map(({ weight }) => weight), ...this.#layers.map(({ bias }) => bias)]
  }

  /**
   * Returns the sums for the weights, then for the biases. Returns undefined unless all exist and
   * can be added to in place.
   */
  #sumsOf({ sums }: GradientListener): readonly Tensor[] | undefined {
    if (sums === undefined) return undefined
    const parameters = this.#parameters()
    const names = new Set(parameters.map(({ name }) => name))
    const found = parameters.flatMap(({ name }) => sums.get(name) ?? [])
    const isWhole = names.size === parameters.length && found.length === parameters.length
    return isWhole && found.every((sum) => this.#eager.isAlone(sum)) ? found : undefined
  }

  /**
   * @param results - gradients of the weights, then of the biases. If the listener throws, the rest
   *   are freed.
   */
  #report(results: readonly Handle[], onGradient: GradientListener): void {
    const layers = this.#layers
    const remaining = new Set(results)
    const report = (parameter: Parameter, handle: Handle): void => {
      remaining.delete(handle)
      onGradient(parameter, this.#eager.take(handle, parameter.shape))
    }
    try {
      for (let i = layers.length - 1; i >= 0; i--) {
        const { weight, bias } = layers[i]!
        report(bias, results[layers.length + i]!)
        report(weight, results[i]!)
      }
    } finally {
      for (const handle of remaining) this.#eager.free(handle)
    }
  }

  #inputGradient(handle: Handle | undefined): Tensor | undefined {
    return handle === undefined ? undefined : this.#eager.take(handle, this.#input.shape)
  }

  #weights(): Tensor[] {
    return this.#layers.map(({ weight }) => weight.value)
  }
}

/** Runs a separate pass for each layer, so that the gradients of large layers are reported one by one. */
export class LayerByLayer implements LinearPasses {
  readonly output: Tensor
  readonly #passes: readonly LinearPasses[]

  constructor(
    layers: readonly LinearLayer[],
    x: Tensor,
    needsInputGradient: boolean,
    pass: (part: readonly LinearLayer[], x: Tensor, needsInputGradient: boolean) => LinearPasses,
  ) {
    let input = x
    this.#passes = layers.map((layer, i) => {
      const own = pass([layer], input, i > 0 || needsInputGradient)
      input = own.output
      return own
    })
    this.output = input
    for (const { output } of this.#passes.slice(0, -1)) tf.keep(output)
  }

  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
    return this.#walk(dy, (pass, gradient) => pass.backward(gradient, onGradient))
  }

  backwardInput(dy: Tensor): Tensor | undefined {
    return this.#walk(dy, (pass, gradient) => pass.backwardInput(gradient))
  }

  backwardParameters(onGradient: GradientListener): void {
    for (const pass of this.#passes.toReversed()) pass.backwardParameters(onGradient)
  }

  dispose(): void {
    for (const pass of this.#passes) pass.dispose()
  }

  /** @param step - maps the gradient of a layer's output to the gradient of its input */
  #walk(
    dy: Tensor,
    step: (pass: LinearPasses, gradient: Tensor) => Tensor | undefined,
  ): Tensor | undefined {
    let gradient: Tensor | undefined = dy
    for (const pass of this.#passes.toReversed()) {
      const output: Tensor = gradient!
      try {
        gradient = step(pass, output)
      } finally {
        if (output !== dy) output.dispose()
      }
    }
    return gradient
  }
}

/** Returns places for gradients to which the kernels of the binding can write. */
export function placesIn(
  kernels: BindingKernels,
  onGradient: GradientListener,
  parameters: readonly Parameter[],
): GradientPlaces | undefined {
  return kernels.takesArrays === true ? placesOf(onGradient, parameters) : undefined
}
