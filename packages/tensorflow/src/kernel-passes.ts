import {
  type GradientListener,
  type GradientPlaces,
  type LinearLayer,
  type LinearPasses,
  type Parameter,
  placesOf,
  type Tensor,
  type TensorBackend,
  tf,
} from '@tsrun/training/backends'
import type { BindingKernels, Handle } from './binding-kernels.ts'
import type { Eager } from './eager.ts'

/** Runs each pass in one call of a binding kernel. Reports all gradients at the end of the pass. */
export function kernelPasses(
  eager: Eager,
  kernels: BindingKernels,
  layers: readonly LinearLayer[],
  x: Tensor,
  needsInputGradient: boolean,
): LinearPasses {
  const relu = Uint8Array.from(layers, ({ activation }) => Number(activation === 'relu'))
  const weights = () => layers.map(({ weight }) => weight.value)
  const parameters = [...layers.map(({ weight }) => weight), ...layers.map(({ bias }) => bias)]
  const inputs = [x, ...parameters.map(({ value }) => value)]
  const all = kernels.linearForward(Int32Array.from(eager.handlesOf(inputs)), relu)
  const input = tf.keep(tf.clone(x))
  // Handles of all outputs but the last, which is a tensor.
  const outputs = all.slice(0, -1)
  const output = eager.take(all.at(-1)!, [x.shape[0], layers.at(-1)!.bias.shape[0]!])
  /**
   * The gradient of each layer before its activation, kept from `backwardInput` to `backwardParameters`.
   */
  let saved: readonly Handle[] = []

  /** Returns the weights and outputs in the argument order of the kernels. */
  const layersForBackward = () => {
    const handles = eager.handlesOf([...weights(), output])
    const last = handles.pop()!
    return [...handles, ...outputs, last]
  }

  /** @param held - disposed if the listener throws */
  const reportWritten = ({ memory }: GradientListener, held?: Tensor) => {
    try {
      for (const { weight, bias } of layers.toReversed()) {
        memory!.written(bias)
        memory!.written(weight)
      }
    } catch (error) {
      held?.dispose()
      throw error
    }
  }

  /**
   * Returns the sums for the weights, then for the biases. Returns undefined unless all exist and
   * can be added to in place.
   */
  const sumsOf = ({ sums }: GradientListener) => {
    if (sums === undefined) return undefined
    const names = new Set(parameters.map(({ name }) => name))
    const found = parameters.flatMap(({ name }) => sums.get(name) ?? [])
    const isWhole = names.size === parameters.length && found.length === parameters.length
    return isWhole && found.every((sum) => eager.isAlone(sum)) ? found : undefined
  }

  /**
   * @param results - gradients of the weights, then of the biases. If the listener throws, the rest
   *   are freed.
   */
  const report = (results: readonly Handle[], onGradient: GradientListener) => {
    const remaining = new Set(results)
    const take = (parameter: Parameter, handle: Handle) => {
      remaining.delete(handle)
      onGradient(parameter, eager.take(handle, parameter.shape))
    }
    try {
      for (let i = layers.length - 1; i >= 0; i--) {
        const { weight, bias } = layers[i]!
        take(bias, results[layers.length + i]!)
        take(weight, results[i]!)
      }
    } finally {
      for (const handle of remaining) eager.free(handle)
    }
  }

  const inputGradient = (handle: Handle | undefined) =>
    handle === undefined ? undefined : eager.take(handle, input.shape)

  return {
    output,
    backward(dy, onGradient) {
      const given = [...eager.handlesOf([input, dy]), ...layersForBackward()]
      const run = (sums: readonly Handle[], places?: GradientPlaces) =>
        kernels.linearBackward(
          Int32Array.from([...given, ...sums]),
          relu,
          needsInputGradient,
          places?.values,
          places?.adds,
        )
      const places = placesIn(kernels, onGradient, parameters)
      if (places !== undefined) {
        const [handle] = run([], places) as Handle[]
        const dx = inputGradient(handle)
        reportWritten(onGradient, dx)
        return dx
      }
      const sums = sumsOf(onGradient)
      const added = sums !== undefined && run(eager.handlesOf(sums))
      if (added !== false) return inputGradient(added[0])
      const results = run([]) as Handle[]
      const dx = inputGradient(results[parameters.length])
      try {
        report(results.slice(0, parameters.length), onGradient)
      } catch (error) {
        dx?.dispose()
        throw error
      }
      return dx
    },
    backwardInput(dy) {
      const given = Int32Array.of(eager.handleOf(dy), ...layersForBackward())
      const results = kernels.linearBackwardInput(given, relu, needsInputGradient)
      saved = results.slice(0, layers.length)
      return inputGradient(results[layers.length])
    },
    backwardParameters(onGradient) {
      const given = Int32Array.of(eager.handleOf(input), ...saved, ...outputs)
      const places = placesIn(kernels, onGradient, parameters)
      const results = kernels.linearBackwardParameters(given, places?.values, places?.adds)
      if (places === undefined) report(results, onGradient)
      else reportWritten(onGradient)
    },
    dispose() {
      for (const handle of [...outputs, ...saved]) eager.free(handle)
      output.dispose()
      input.dispose()
    },
  }
}

/** Runs a separate pass for each layer, so that the gradients of large layers are reported one by one. */
export function layerByLayer(
  layers: readonly LinearLayer[],
  x: Tensor,
  needsInputGradient: boolean,
  pass: NonNullable<TensorBackend['linearPasses']>,
): LinearPasses {
  let input = x
  const passes = layers.map((layer, i) => {
    const own = pass([layer], input, i > 0 || needsInputGradient)
    input = own.output
    return own
  })
  for (const { output } of passes.slice(0, -1)) tf.keep(output)

  /** @param step - maps the gradient of a layer's output to the gradient of its input */
  const walk = (dy: Tensor, step: (pass: LinearPasses, gradient: Tensor) => Tensor | undefined) => {
    let gradient: Tensor | undefined = dy
    for (const pass of passes.toReversed()) {
      const output: Tensor = gradient!
      try {
        gradient = step(pass, output)
      } finally {
        if (output !== dy) output.dispose()
      }
    }
    return gradient
  }

  return {
    output: input,
    backward: (dy, onGradient) => walk(dy, (pass, gradient) => pass.backward(gradient, onGradient)),
    backwardInput: (dy) => walk(dy, (pass, gradient) => pass.backwardInput(gradient)),
    backwardParameters(onGradient) {
      for (const pass of passes.toReversed()) pass.backwardParameters(onGradient)
    },
    dispose() {
      for (const pass of passes) pass.dispose()
    },
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
