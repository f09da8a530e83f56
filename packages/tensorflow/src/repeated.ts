import { createLogger } from '@tsrun/core'
import {
  checkedRecording,
  type GradientListener,
  isRepeatable,
  type Module,
  type Parameter,
  partsOf,
  type Recording,
  type Tensor,
  tf,
} from '@tsrun/training/backends'
import type { Handle } from './binding-kernels.ts'
import { currentEager, type Eager } from './eager.ts'
import { createTrace, keyOfArgument, placeOf, type TracedFunction } from './trace.ts'

/**
 * The largest number of functions of a computation, and of plans of a module: one for each combination of
 * input shapes.
 */
const MOST_FUNCTIONS = 8

interface Computation {
  readonly traced: TracedFunction
  /** The indices of the inputs that the function takes. */
  readonly places: readonly number[]
}

/**
 * TensorFlow functions by name of the computation and shapes of its inputs; undefined after the
 * first run.
 */
const computations = new Map<string, Map<string, Computation | undefined>>()
const untraceable = new Set<string>()

/** Runs a computation as a TensorFlow function from the third run on. */
export function repeat(
  name: string,
  inputs: readonly Tensor[],
  run: () => Tensor[],
  numbers: readonly number[] = [],
): Tensor[] | undefined {
  const eager = currentEager()!
  if (!eager.hasFunctions || untraceable.has(name)) return undefined
  const functions = computations.get(name) ?? new Map<string, Computation | undefined>()
  computations.set(name, functions)
  const shapes = [...inputs.map(({ shape }) => shape.join()), ...numbers].join(';')
  const known = functions.get(shapes)
  if (known !== undefined) {
    const bits: Handle[] = []
    try {
      const { traced, places } = known
      const given = places.map((place) => {
        const input = inputs[place]!
        if (!eager.takesBits(input)) return eager.handleOf(input)
        bits.push(eager.bitsOf(input))
        return bits.at(-1)!
      })
      const results = eager.call(traced.definition, given)
      return results.map((handle, i) => eager.take(handle, traced.shapes[i]!))
    } finally {
      for (const handle of bits) eager.free(handle)
    }
  }
  if (!functions.has(shapes)) {
    if (functions.size < MOST_FUNCTIONS) functions.set(shapes, undefined)
    return undefined
  }
  const trace = createTrace(eager)
  for (const input of inputs) trace.addArgument(input)
  const outputs = trace.run(run)
  const traced = attempt(`${name} does`, () => trace.defineAll(outputs))
  if (traced === undefined) untraceable.add(name)
  else functions.set(shapes, { traced, places: traced.inputs.map(placeOf) })
  return outputs
}

/** The TensorFlow functions of the passes of a module with one input shape. */
interface Passes {
  /** Returns the output, then the values that the backward pass needs. */
  readonly forward: TracedFunction
  /**
   * Returns the gradient of the input if requested, then the values that the other half needs. Undefined if
   * there are none.
   */
  readonly backwardInput: TracedFunction | undefined
  /** Returns the gradients of parameters. Undefined if there are none. */
  readonly backwardParameters: TracedFunction | undefined
  /** The parameters in the order of their gradients. */
  readonly parameters: readonly Parameter[]
  /** The keys of the parameters whose values the backward pass needs. */
  readonly needed: readonly string[]
  readonly outputGradient: string
}

interface Plan {
  readonly eager: Eager
  readonly parameters: readonly Parameter[]
  /** The module and its submodules. */
  readonly modules: readonly Module[]
  readonly needsInputGradient: boolean
  readonly record: (x: Tensor) => Recording
  /** `broken` if a pass cannot become functions; undefined before the first pass. */
  passes: Passes | 'traced' | 'broken' | undefined
}

const plans = new WeakMap<Module, Map<string, Plan>>()

/**
 * Records the pass of a module that runs the same operations each time. The second pass for an
 * input shape is traced and becomes TensorFlow functions, which later passes call. On small tensors
 * or a GPU, launching an operation takes longer than computing it.
 *
 * @param record - records a pass of the module on the tape
 * @returns undefined if the pass must be recorded in another way
 */
export function repeatPass(
  module: Module,
  x: Tensor,
  needsInputGradient: boolean,
  record: (x: Tensor) => Recording,
): Recording | undefined {
  const eager = currentEager()!
  // The binding's own kernels are faster than TensorFlow functions.
  const hasKernels = eager.kernels !== undefined && recordsAll(module)
  if (hasKernels || !eager.hasFunctions || !isRepeatable(module, x)) return undefined
  const ofModule = plans.get(module) ?? new Map<string, Plan>()
  plans.set(module, ofModule)
  const key = `${String(needsInputGradient)} ${x.dtype} ${x.shape.join()}`
  const { parameters } = module
  const modules = partsOf(module)
  let plan = ofModule.get(key)
  // The submodules and parameters of a module may change.
  const isValid =
    plan?.eager === eager &&
    isSameList(plan.parameters, parameters) &&
    isSameList(plan.modules, modules)
  if (plan === undefined || !isValid) {
    if (plan === undefined && ofModule.size >= MOST_FUNCTIONS) return undefined
    plan = { eager, parameters, modules, needsInputGradient, record, passes: undefined }
    ofModule.set(key, plan)
  }
  const { passes } = plan
  if (typeof passes === 'object') return repeatedPass(plan, passes, x)
  plan.passes ??= 'traced'
  return passes === 'traced' ? tracedPass(plan, x) : undefined
}

/** Whether all layers of a module have a way of their own to record, as linear layers do. */
function recordsAll(module: Module): boolean {
  return module.record !== undefined && (module.layers ?? []).every(recordsAll)
}

function isSameList(own: readonly object[], others: readonly object[]): boolean {
  return own.length === others.length && own.every((each, i) => each === others[i])
}

/** A trace begins with its arguments: the input, then the parameters. */
const INPUT = keyOfArgument(0)

/** A pass on the tape whose operations are traced. */
function tracedPass(plan: Plan, x: Tensor): Recording {
  const trace = createTrace(plan.eager)
  trace.addArgument(x)
  for (const { value } of plan.parameters) trace.addArgument(value)
  const pass = trace.run(() => plan.record(x))
  const { value } = pass
  const [output] = trace.keysOf([value])
  const start = trace.length
  /** The results of the first half of the backward pass, and the length of the trace after it. */
  let first: { readonly outputs: readonly string[]; readonly end: number } | undefined

  const run = <T>(compute: () => T): T => {
    // The memory of sharded parameters is freed after a forward pass and reallocated at another address.
    for (const [i, { value }] of plan.parameters.entries()) {
      if (!value.isDisposed) trace.renew(keyOfArgument(1 + i), value)
    }
    return trace.run(compute)
  }
  const define = (keys: readonly string[], from: number) =>
    keys.length === 0 ? undefined : trace.define(keys, from)
  /** Makes functions of the trace. */
  const learn = (parameters: readonly Parameter[], gradients: readonly string[]): Passes => {
    const { outputs, end } = first!
    const backwardParameters = define(gradients, end)
    const others = backwardParameters?.inputs ?? []
    const shared = others.filter((key) => trace.isMade(key, start, end))
    const backwardInput = define([...outputs, ...shared], start)
    const inputs = new Set([...(backwardInput?.inputs ?? []), ...others])
    const saved = Array.from(inputs).filter((key) => trace.isMade(key, 0, start))
    return {
      forward: trace.define([output!, ...saved]),
      backwardInput,
      backwardParameters,
      parameters,
      needed: plan.parameters.map((_, i) => keyOfArgument(1 + i)).filter((key) => inputs.has(key)),
      outputGradient: keyOfArgument(start),
    }
  }
  const backwardInput = (dy: Tensor) => {
    trace.addArgument(dy)
    const dx = run(() => pass.backwardInput!(dy))
    const outputs = trace.keysOf(dx === undefined ? [] : [dx])
    first = { outputs, end: trace.length }
    return dx
  }
  const backwardParameters = (onGradient: GradientListener) => {
    const parameters: Parameter[] = []
    const gradients: Tensor[] = []
    // Call the listener afterwards, so that the trace excludes its work.
    run(() => {
      pass.backwardParameters!((parameter, gradient) => {
        parameters.push(parameter)
        gradients.push(gradient)
      })
    })
    const keys = trace.keysOf(gradients)
    if (plan.passes === 'traced') {
      plan.passes = attempt('passes do', () => learn(parameters, keys)) ?? 'broken'
    }
    for (const [i, gradient] of gradients.entries()) onGradient(parameters[i]!, gradient)
  }
  return {
    value,
    backward(dy, onGradient) {
      const dx = backwardInput(dy)
      backwardParameters(onGradient)
      return dx
    },
    backwardInput,
    backwardParameters,
    dispose() {
      pass.dispose()
    },
  }
}

/** Returns undefined if a trace cannot become a function. */
function attempt<T>(what: string, define: () => T): T | undefined {
  try {
    return define()
  } catch (error) {
    const { message } = error as Error
    createLogger('training').debug({ reason: message }, `${what} not become functions`)
    return undefined
  }
}

function repeatedPass(plan: Plan, passes: Passes, x: Tensor): Recording {
  const { eager } = plan
  const input = tf.keep(tf.clone(x))
  /** The values that parameters had in the forward pass, by key. */
  const parameters = new Map<string, Tensor>()
  /** Results that the backward functions need, and the bits of an int32 input, by key. */
  const kept = new Map<string, Handle>()
  let outputGradient: Tensor | undefined

  const free = () => {
    for (const handle of kept.values()) eager.free(handle)
    kept.clear()
    tf.dispose([input, ...parameters.values()])
    parameters.clear()
    outputGradient?.dispose()
    outputGradient = undefined
  }
  const tensorOf = (key: string) => {
    if (key === INPUT) return input
    if (key === passes.outputGradient) return outputGradient!
    return parameters.get(key) ?? plan.parameters[placeOf(key) - 1]!.value
  }
  /** @returns tensors of the first `count` results. The other results are kept. */
  const call = (run: TracedFunction | undefined, count: number) => {
    if (run === undefined) return []
    const given = run.inputs.map((key) => kept.get(key) ?? eager.handleOf(tensorOf(key)))
    const results = eager.call(run.definition, given)
    results.slice(count).forEach((handle, i) => kept.set(run.outputs[count + i]!, handle))
    return results.slice(0, count).map((handle, i) => eager.take(handle, run.shapes[i]!))
  }
  const forward = (): Tensor => {
    try {
      for (const key of passes.needed) parameters.set(key, tf.keep(tf.clone(tensorOf(key))))
      if (eager.takesBits(x)) kept.set(INPUT, eager.bitsOf(x))
      return call(passes.forward, 1)[0]!
    } catch (error) {
      free()
      throw error
    }
  }
  const value = forward()
  const backwardInput = (dy: Tensor) => {
    outputGradient = tf.keep(tf.clone(dy))
    return call(passes.backwardInput, plan.needsInputGradient ? 1 : 0)[0]
  }
  const backwardParameters = (onGradient: GradientListener) => {
    const gradients = call(passes.backwardParameters, passes.parameters.length)
    free()
    for (const [i, gradient] of gradients.entries()) onGradient(passes.parameters[i]!, gradient)
  }
  return checkedRecording(value, {
    backward(dy, onGradient) {
      const dx = backwardInput(dy)
      backwardParameters(onGradient)
      return dx
    },
    backwardInput,
    backwardParameters,
    dispose() {
      free()
      value.dispose()
    },
  })
}
