import { createLogger } from '@tsrun/core'
import {
  checkedRecording,
  type GradientListener,
  isRepeatable,
  type Module,
  operationsOf,
  type Parameter,
  partsOf,
  type Recording,
  type Tensor,
  tf,
} from '@tsrun/training/backends'
import type { Handle } from './binding-kernels.ts'
import { currentEager, type Eager, type Input } from './eager.ts'
import { areLinear } from './linear.ts'
import { createTrace, keyOfArgument, placeOf, type Trace, type TracedFunction } from './trace.ts'

/** The largest number of input shapes per computation or module for which to make functions. */
const MOST_FUNCTIONS = 8

interface Computation {
  readonly traced: TracedFunction
  /** The indices of the inputs that the function takes. */
  readonly places: readonly number[]
}

/** Computations, keyed by name and then by input shapes. A value is undefined until the second run. */
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
        if (!eager.takesBits(input)) return input
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
  try {
    const traced = trace.defineAll(outputs)
    functions.set(shapes, { traced, places: traced.inputs.map(placeOf) })
  } catch (error) {
    untraceable.add(name)
    const { message } = error as Error
    createLogger('training').debug({ reason: message }, `${name} does not become a function`)
  }
  return outputs
}

/** A traced part of a pass. It returns gradients of the input and of parameters, then other values. */
interface Step {
  readonly run: TracedFunction
  readonly hasInputGradient: boolean
  readonly parameters: readonly Parameter[]
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
  const operations = eager.kernels === undefined ? undefined : operationsOf(module)
  const hasKernels = operations !== undefined && areLinear(operations)
  if (hasKernels || !eager.hasFunctions || !isRepeatable(module, x)) return undefined
  const ofModule = plans.get(module) ?? new Map<string, Plan>()
  plans.set(module, ofModule)
  const key = `${String(needsInputGradient)} ${x.dtype} ${x.shape.join()}`
  let plan = ofModule.get(key)
  if (plan?.eager !== eager || !plan.isFor(module)) {
    if (plan === undefined && ofModule.size >= MOST_FUNCTIONS) return undefined
    plan = new Plan(eager, module, record)
    ofModule.set(key, plan)
  }
  return plan.start(x)
}

/** The TensorFlow functions for passes of a module with one input shape. */
class Plan {
  readonly eager: Eager
  readonly parameters: readonly Parameter[]
  readonly record: (x: Tensor) => Recording
  /** Returns the output, and the values that the backward pass needs. */
  forward: TracedFunction | undefined
  backward: Step | undefined
  halves: readonly [Step, Step] | undefined
  /** The keys of the parameters whose values a step needs. */
  needed: readonly string[] = []
  outputGradient: string | undefined
  #isFirst = true
  #canRepeat = true
  readonly #saved = new Set<string>()
  readonly #parts: readonly Module[]

  constructor(eager: Eager, module: Module, record: (x: Tensor) => Recording) {
    this.eager = eager
    this.parameters = module.parameters
    this.#parts = partsOf(module)
    this.record = record
  }

  /** Whether the module still has the same submodules and parameters. */
  isFor(module: Module): boolean {
    return (
      isSameList(this.parameters, module.parameters) && isSameList(this.#parts, partsOf(module))
    )
  }

  start(x: Tensor): Recording | undefined {
    if (this.forward !== undefined) return repeatedPass(this, x)
    const isTraced = this.#canRepeat && !this.#isFirst
    this.#isFirst = false
    return isTraced ? tracedPass(this, x) : undefined
  }

  /** Makes TensorFlow functions from a traced pass. The first `length` nodes are the forward pass. */
  learn(trace: Trace, output: string, length: number, define: () => void): void {
    if (!this.#canRepeat) return
    try {
      define()
      const steps = [this.backward, ...(this.halves ?? [])].filter((step) => step !== undefined)
      const inputs = steps.flatMap(({ run }) => run.inputs)
      for (const key of inputs) if (trace.isMade(key, 0, length)) this.#saved.add(key)
      this.needed = this.parameters.flatMap((_, i) => {
        const key = keyOfArgument(1 + i)
        return inputs.includes(key) ? key : []
      })
      this.outputGradient = keyOfArgument(length)
      this.forward = trace.define([output, ...this.#saved])
    } catch (error) {
      this.#canRepeat = false
      this.forward = undefined
      const { message } = error as Error
      createLogger('training').debug({ reason: message }, 'passes do not become functions')
    }
  }

  parameterOf(key: string): Parameter | undefined {
    return this.parameters[placeOf(key) - 1]
  }
}

function isSameList(own: readonly object[], others: readonly object[]): boolean {
  return own.length === others.length && own.every((each, i) => each === others[i])
}

/** A trace begins with its arguments: the input, then the parameters. */
const INPUT = keyOfArgument(0)

/** A pass on the tape whose operations are traced. */
function tracedPass(plan: Plan, x: Tensor): Required<Recording> {
  const trace = createTrace(plan.eager)
  trace.addArgument(x)
  for (const { value } of plan.parameters) trace.addArgument(value)
  const pass = trace.run(() => plan.record(x))
  const { value } = pass
  const [output] = trace.keysOf([value])
  const forward = trace.length
  let first: { readonly length: number; readonly outputs: readonly string[] } | undefined

  /** Collects the gradients before calling the listener, so that the trace excludes the listener's work. */
  const run = (compute: (take: GradientListener) => Tensor | undefined) => {
    // The memory of sharded parameters is freed after a forward pass and reallocated at another address.
    for (const [i, { value }] of plan.parameters.entries()) {
      if (!value.isDisposed) trace.renew(keyOfArgument(1 + i), value)
    }
    const parameters: Parameter[] = []
    const gradients: Tensor[] = []
    const take = (parameter: Parameter, gradient: Tensor) => {
      parameters.push(parameter)
      gradients.push(gradient)
    }
    const dx = trace.run(() => compute(take))
    const report = (onGradient: GradientListener) => {
      for (const [i, gradient] of gradients.entries()) onGradient(parameters[i]!, gradient)
    }
    return { dx, parameters, gradients, report }
  }
  const learn = (define: () => void) => {
    plan.learn(trace, output!, forward, define)
  }

  return {
    value,
    backward(dy, onGradient) {
      trace.addArgument(dy)
      const { dx, parameters, gradients, report } = run((take) => pass.backward(dy, take))
      const hasInputGradient = dx !== undefined
      const outputs = trace.keysOf(hasInputGradient ? [dx, ...gradients] : gradients)
      learn(() => {
        plan.backward = { run: trace.define(outputs, forward), hasInputGradient, parameters }
      })
      report(onGradient)
      return dx
    },
    backwardInput(dy) {
      trace.addArgument(dy)
      const { dx } = run(() => pass.backwardInput!(dy))
      const outputs = trace.keysOf(dx === undefined ? [] : [dx])
      first = { length: trace.length, outputs }
      return dx
    },
    backwardParameters(onGradient) {
      const { parameters, gradients, report } = run((take) => {
        pass.backwardParameters!(take)
        return undefined
      })
      const outputs = trace.keysOf(gradients)
      const { length, outputs: ofInput } = first!
      learn(() => {
        const second = trace.define(outputs, length)
        const kept = second.inputs.filter((key) => trace.isMade(key, forward, length))
        const run = trace.define([...ofInput, ...kept], forward)
        plan.halves = [
          { run, hasInputGradient: ofInput.length > 0, parameters: [] },
          { run: second, hasInputGradient: false, parameters },
        ]
      })
      report(onGradient)
    },
    dispose() {
      pass.dispose()
    },
  }
}

function repeatedPass(plan: Plan, x: Tensor): Recording {
  const { eager } = plan
  const input = tf.keep(tf.clone(x))
  /** The values that parameters had in the forward pass, by key. */
  const parameters = new Map<string, Tensor>()
  /** Results that the backward functions need, and the bits of an int32 input, by key. */
  const kept = new Map<string, Handle>()
  let outputGradient: Tensor | undefined
  /** The pass on the tape, if the plan has not traced this kind of backward pass yet. */
  let traced: Required<Recording> | undefined

  const free = () => {
    for (const handle of kept.values()) eager.free(handle)
    kept.clear()
    tf.dispose([input, ...parameters.values()])
    parameters.clear()
    outputGradient?.dispose()
    outputGradient = undefined
  }
  /** @returns tensors of the first `count` results. The other results are kept. */
  const call = (run: TracedFunction, given: readonly Input[], count: number) => {
    const results = eager.call(run.definition, given)
    results.slice(count).forEach((handle, i) => kept.set(run.outputs[count + i]!, handle))
    return results.slice(0, count).map((handle, i) => eager.take(handle, run.shapes[i]!))
  }
  const find = (key: string) => {
    const tensor = key === INPUT ? input : parameters.get(key)
    const found = key === plan.outputGradient ? outputGradient : tensor
    return kept.get(key) ?? found
  }
  /** Whether all inputs of the step are available. A forward pass of another plan may keep fewer values. */
  const has = ({ run }: Step) => run.inputs.every((key) => find(key) !== undefined)
  const step = (
    { run, hasInputGradient, parameters }: Step,
    onGradient: GradientListener,
    isLast = true,
  ) => {
    const offset = hasInputGradient ? 1 : 0
    const given = run.inputs.map((key) => find(key)!)
    const results = call(run, given, offset + parameters.length)
    if (isLast) free()
    parameters.forEach((parameter, i) => {
      onGradient(parameter, results[offset + i]!)
    })
    return hasInputGradient ? results[0] : undefined
  }
  const begin = (dy: Tensor) => {
    outputGradient = tf.keep(tf.clone(dy))
  }

  const forward = (): Tensor => {
    try {
      for (const key of plan.needed) {
        parameters.set(key, tf.keep(tf.clone(plan.parameterOf(key)!.value)))
      }
      if (eager.takesBits(x)) kept.set(INPUT, eager.bitsOf(x))
      const valueOf = (key: string) =>
        kept.get(key) ?? (key === INPUT ? input : plan.parameterOf(key)!.value)
      return call(plan.forward!, plan.forward!.inputs.map(valueOf), 1)[0]!
    } catch (error) {
      free()
      throw error
    }
  }
  const value = forward()
  return checkedRecording(value, {
    backward(dy, onGradient) {
      begin(dy)
      const { backward } = plan
      if (backward !== undefined && has(backward)) return step(backward, onGradient)
      traced = tracedPass(plan, input)
      return traced.backward(dy, onGradient)
    },
    backwardInput(dy) {
      begin(dy)
      const first = plan.halves?.[0]
      if (first !== undefined && has(first)) return step(first, () => undefined, false)
      traced = tracedPass(plan, input)
      return traced.backwardInput(dy)
    },
    backwardParameters(onGradient) {
      if (traced === undefined) step(plan.halves![1], onGradient)
      else traced.backwardParameters(onGradient)
    },
    dispose() {
      traced?.dispose()
      free()
      value.dispose()
    },
  })
}
