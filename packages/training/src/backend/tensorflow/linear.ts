import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from '../../model/parameter.ts'
import { placesOf, type GradientListener, type GradientPlaces } from '../../model/recording.ts'
import type { LinearLayer, LinearPasses } from '../../tfjs/backend.ts'
import { tf } from '../../tfjs/tfjs.ts'
import type { BindingKernels } from './binding-kernels.ts'
import { currentEager, type Eager, type Handle } from './eager.ts'

/**
 * The most multiplications of a forward pass that one call computes, where TensorFlow would use several
 * threads. They take 0.3 ms.
 */
const MOST_MULTIPLICATIONS = 2 ** 24
/** The most elements of all weights that one call computes with: 4 MiB. */
const MOST_ELEMENTS = 2 ** 20
/** The most rows for which the kernels are faster than TensorFlow with any weights: see `few-rows.h`. */
const FEW_ROWS = 32

/** The passes of linear layers on TensorFlow. */
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
 * Whether to compute each pass in one call, at whose end all gradients are reported. For small layers
 * that is no loss: their gradients do not fill a bucket that could be sent earlier.
 */
function isForOneCall({ threads }: Eager, layers: readonly LinearLayer[], x: Tensor): boolean {
  const elements = layers.reduce((sum, { weight }) => sum + weight.value.size, 0)
  if (elements > MOST_ELEMENTS) return false
  return threads === 1 || elements * x.shape[0] <= MOST_MULTIPLICATIONS
}

/** Each pass is one call of a kernel of the binding. All gradients are reported at its end. */
class KernelPasses implements LinearPasses {
  readonly output: Tensor
  readonly #eager: Eager
  readonly #kernels: BindingKernels
  readonly #layers: readonly LinearLayer[]
  readonly #relu: Uint8Array
  readonly #needsInputGradient: boolean
  readonly #input: Tensor
  /** The outputs of all layers but the last one, whose output is a tensor. */
  readonly #outputs: readonly Handle[]
  /** Between the halves of a backward pass: the gradient of each layer before its activation. */
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

  /** The weights and outputs, in the order of the kernels' arguments. */
  #layersForBackward(): Handle[] {
    const handles = this.#eager.handlesOf([...this.#weights(), this.output])
    const output = handles.pop()!
    return [...handles, ...this.#outputs, output]
  }

  /** Places for the gradients of the weights, then of the biases. */
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

  /** The weights, then the biases. */
  #parameters(): Parameter[] {
    return [...this.#layers.map(({ weight }) => weight), ...this.#layers.map(({ bias }) => bias)]
  }

  /** The sums of the weights, then of the biases; undefined unless each exists and can be added to. */
  #sumsOf({ sums }: GradientListener): readonly Tensor[] | undefined {
    if (sums === undefined) return undefined
    const parameters = this.#parameters()
    const names = new Set(parameters.map(({ name }) => name))
    const found = parameters.flatMap(({ name }) => sums.get(name) ?? [])
    const isWhole = names.size === parameters.length && found.length === parameters.length
    return isWhole && found.every((sum) => this.#eager.isAlone(sum)) ? found : undefined
  }

  /** @param results - gradients of the weights, then of the biases; those not reported are freed */
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

/** A pass of each layer after the other, so that the gradients of large layers are reported one by one. */
class LayerByLayer implements LinearPasses {
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

  /** @param step - takes the gradient of the output of a layer to that of its input */
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

/** Places for gradients to which the kernels of the binding can write. */
function placesIn(
  kernels: BindingKernels,
  onGradient: GradientListener,
  parameters: readonly Parameter[],
): GradientPlaces | undefined {
  return kernels.takesArrays === true ? placesOf(onGradient, parameters) : undefined
}

/**
 * The passes are operations of TensorFlow itself. Only results are tensors of TensorFlow.js: the values
 * between two layers are handles, which this object frees.
 */
class EagerPasses implements LinearPasses {
  readonly output: Tensor
  readonly #eager: Eager
  readonly #layers: readonly LinearLayer[]
  readonly #needsInputGradient: boolean
  readonly #input: Tensor
  /** The outputs of all layers but the last one, whose output is a tensor. */
  readonly #outputs: Handle[] = []
  /** Between the halves of a backward pass: the gradient of each layer before its activation. */
  readonly #saved: Handle[] = []
  /** Between the halves of a backward pass: a clone of the gradient of the output. */
  #lastGradient: Tensor | undefined
  /** The handles to free. */
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
   * @param visit - gets the gradient of each layer before its activation, which it may drop when it
   *   needs it no longer
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
    // With one thread the kernels are as fast as TensorFlow; with several, TensorFlow is faster.
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

  /** Frees a handle, if this object holds it. */
  #drop(handle: Handle): void {
    if (this.#held.delete(handle)) this.#eager.free(handle)
  }
}
