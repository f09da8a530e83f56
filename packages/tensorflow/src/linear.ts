import {
  type GradientListener,
  type GradientPlaces,
  type LinearLayer,
  type Operation,
  type OperationPasses,
  type Parameter,
  placesOf,
  type Tensor,
  tf,
} from '@tsrun/training/backends'
import type { BindingKernels, Handle } from './binding-kernels.ts'
import { currentEager, type Eager } from './eager.ts'

/** Maximum multiplications (0.3 ms) of a forward pass in one call, with several TensorFlow threads. */
const MOST_MULTIPLICATIONS = 2 ** 24
/** The largest number of weights for a pass in one call (4 MiB). */
const MOST_ELEMENTS = 2 ** 20
/** Up to this number of rows, our kernels are faster for weights of any size; see `few-rows.h`. */
const FEW_ROWS = 32

/** Records modules that are linear layers only. */
export function recordOperations(
  operations: readonly Operation[],
  x: Tensor,
  needsInputGradient: boolean,
  isWhole: boolean,
): OperationPasses | undefined {
  if (!isWhole || x.rank !== 2 || !areLinear(operations)) return undefined
  const eager = currentEager()!
  const { kernels } = eager
  if (kernels !== undefined && isForOneCall(eager, operations, x)) {
    return kernelPasses(eager, kernels, operations, x, needsInputGradient)
  }
  const pass: LayerPass =
    kernels !== undefined && eager.threads === 1 && x.shape[0] <= FEW_ROWS
      ? (layer, ...given) => kernelPasses(eager, kernels, [layer], ...given)
      : (...given) => eagerPasses(eager, ...given)
  return layerByLayer(operations, x, needsInputGradient, pass)
}

/** Whether all operations are linear layers whose weights are matrices. */
export function areLinear(
  operations: readonly Operation[],
): operations is readonly (Operation & { type: 'linear' })[] {
  return operations.every(
    (operation) => operation.type === 'linear' && operation.weight.shape.length === 2,
  )
}

type LayerPass = (layer: LinearLayer, x: Tensor, needsInputGradient: boolean) => OperationPasses

/**
 * Whether to compute each pass in one call, which reports all gradients at the end. For small layers,
 * communication is not delayed: their gradients would not fill a bucket earlier.
 */
function isForOneCall({ threads }: Eager, layers: readonly LinearLayer[], x: Tensor): boolean {
  const elements = layers.reduce((sum, { weight }) => sum + weight.value.size, 0)
  if (elements > MOST_ELEMENTS) return false
  return threads === 1 || elements * x.shape[0] <= MOST_MULTIPLICATIONS
}

/** The passes of one layer, made of TensorFlow operations. */
function eagerPasses(
  eager: Eager,
  { weight, bias, activation }: LinearLayer,
  x: Tensor,
  needsInputGradient: boolean,
): OperationPasses {
  const input = tf.keep(tf.clone(x))
  const product = eager.matMul(input, weight.value)
  const sum = eager.addBias(product, bias.value)
  eager.free(product)
  const isLinear = activation === 'linear'
  const output = eager.take(isLinear ? sum : eager.relu(sum), [x.shape[0], bias.shape[0]!])
  if (!isLinear) eager.free(sum)
  /** The gradient before the activation, kept from `backwardInput` to `backwardParameters`. */
  let saved: Tensor | undefined

  const backwardInput = (dy: Tensor) => {
    saved = isLinear ? tf.keep(tf.clone(dy)) : eager.take(eager.reluGradient(dy, output), dy.shape)
    if (!needsInputGradient) return undefined
    return eager.take(eager.matMul(saved, weight.value, false, true), input.shape)
  }
  const report = (dz: Tensor, onGradient: GradientListener) => {
    // With one thread, our kernels are as fast as TensorFlow. With several threads, TensorFlow is faster.
    const kernels = eager.threads === 1 ? eager.kernels : undefined
    const places = kernels && placesOf(onGradient, [weight, bias])
    if (kernels !== undefined && places !== undefined) {
      kernels.linearBackwardParameters(eager.handlesOf([input, dz]), places.values, places.adds)
      onGradient.memory!.written(bias)
      onGradient.memory!.written(weight)
      return
    }
    onGradient(bias, eager.take(eager.biasGradient(dz), bias.shape))
    onGradient(weight, eager.take(eager.matMul(input, dz, true), weight.shape))
  }
  const release = () => {
    saved?.dispose()
    saved = undefined
  }
  const backwardParameters = (onGradient: GradientListener) => {
    report(saved!, onGradient)
    release()
  }

  return {
    value: output,
    backward(dy, onGradient) {
      const dx = backwardInput(dy)
      try {
        backwardParameters(onGradient)
      } catch (error) {
        dx?.dispose()
        throw error
      }
      return dx
    },
    backwardInput,
    backwardParameters,
    dispose() {
      release()
      tf.dispose([input, output])
    },
  }
}

/** Runs each pass in one call of a binding kernel. Reports all gradients at the end of the pass. */
function kernelPasses(
  eager: Eager,
  kernels: BindingKernels,
  layers: readonly LinearLayer[],
  x: Tensor,
  needsInputGradient: boolean,
): OperationPasses {
  const relu = Uint8Array.from(layers, ({ activation }) => Number(activation === 'relu'))
  const parameters = [...layers.map(({ weight }) => weight), ...layers.map(({ bias }) => bias)]
  const inputs = [x, ...parameters.map(({ value }) => value)]
  const all = kernels.linearForward(eager.handlesOf(inputs), relu)
  const input = tf.keep(tf.clone(x))
  // Handles of all outputs but the last, which is a tensor.
  const outputs = all.slice(0, -1)
  const output = eager.take(all.at(-1)!, [x.shape[0], layers.at(-1)!.bias.shape[0]!])
  /** Gradients before the activations, kept from `backwardInput` to `backwardParameters`. */
  let saved: readonly Handle[] = []

  /** Returns the weights and outputs in the argument order of the kernels. */
  const layersForBackward = () => [...layers.map(({ weight }) => weight.value), ...outputs, output]

  /** The gradient sums of weights, then of biases; undefined unless all can be updated in place. */
  const sumsOf = ({ sums }: GradientListener) => {
    if (sums === undefined) return undefined
    const names = new Set(parameters.map(({ name }) => name))
    const found = parameters.flatMap(({ name }) => sums.get(name) ?? [])
    const isWhole = names.size === parameters.length && found.length === parameters.length
    return isWhole && found.every((sum) => eager.isAlone(sum)) ? found : undefined
  }

  /**
   * Reports gradients. If the listener throws, frees the remaining gradients and `dx`.
   *
   * @param results - gradients of weights, then of biases; empty if they are in the listener's arrays
   */
  const report = (results: readonly Handle[], onGradient: GradientListener, dx?: Tensor) => {
    const remaining = new Set(results)
    const take = (parameter: Parameter, handle: Handle | undefined) => {
      if (handle === undefined) {
        onGradient.memory!.written(parameter)
        return
      }
      remaining.delete(handle)
      onGradient(parameter, eager.take(handle, parameter.shape))
    }
    try {
      for (let i = layers.length - 1; i >= 0; i--) {
        const { weight, bias } = layers[i]!
        take(bias, results[layers.length + i])
        take(weight, results[i])
      }
    } catch (error) {
      dx?.dispose()
      throw error
    } finally {
      for (const handle of remaining) eager.free(handle)
    }
  }

  const inputGradient = (handle: Handle | undefined) =>
    handle === undefined ? undefined : eager.take(handle, input.shape)

  return {
    value: output,
    backward(dy, onGradient) {
      const given = [input, dy, ...layersForBackward()]
      const run = (sums: readonly Tensor[], places?: GradientPlaces) =>
        kernels.linearBackward(
          eager.handlesOf([...given, ...sums]),
          relu,
          needsInputGradient,
          places?.values,
          places?.adds,
        )
      const places = placesOf(onGradient, parameters)
      if (places !== undefined) {
        const [handle] = run([], places) as Handle[]
        const dx = inputGradient(handle)
        report([], onGradient, dx)
        return dx
      }
      const sums = sumsOf(onGradient)
      const added = sums !== undefined && run(sums)
      if (added !== false) return inputGradient(added[0])
      const results = run([]) as Handle[]
      const dx = inputGradient(results[parameters.length])
      report(results.slice(0, parameters.length), onGradient, dx)
      return dx
    },
    backwardInput(dy) {
      const given = eager.handlesOf([dy, ...layersForBackward()])
      const results = kernels.linearBackwardInput(given, relu, needsInputGradient)
      saved = results.slice(0, layers.length)
      return inputGradient(results[layers.length])
    },
    backwardParameters(onGradient) {
      const given = eager.handlesOf([input, ...saved, ...outputs])
      const places = placesOf(onGradient, parameters)
      report(kernels.linearBackwardParameters(given, places?.values, places?.adds), onGradient)
    },
    dispose() {
      for (const handle of [...outputs, ...saved]) eager.free(handle)
      output.dispose()
      input.dispose()
    },
  }
}

/** Runs a separate pass for each layer, so that the gradients of large layers are reported one by one. */
function layerByLayer(
  layers: readonly LinearLayer[],
  x: Tensor,
  needsInputGradient: boolean,
  pass: LayerPass,
): OperationPasses {
  let input = x
  const passes = layers.map((layer, i) => {
    const own = pass(layer, input, i > 0 || needsInputGradient)
    input = own.value
    return own
  })

  /** @param step - maps the gradient of a layer's output to the gradient of its input */
  const walk = (
    dy: Tensor,
    step: (pass: OperationPasses, gradient: Tensor) => Tensor | undefined,
  ) => {
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
    value: input,
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
