import { createLogger, tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { isRepeatable, partsOf, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import {
  checkOutputGradient,
  type GradientListener,
  type Recording,
} from '../../model/recording.ts'
import { tf } from '../../tfjs/tfjs.ts'
import type { Handle } from './binding-kernels.ts'
import { currentEager, type Eager } from './eager.ts'
import { keyOfArgument, placeOf, Trace, type TracedFunction } from './trace.ts'

/** The largest number of plans of a module. A module has one plan for each input shape. */
const MOST_PLANS = 8

/**
 * A traced part of a pass. The function of the part returns the gradients of the input and of parameters,
 * then other values.
 */
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
  const hasOwnWay = eager.kernels !== undefined && module.record !== undefined
  if (hasOwnWay || !eager.hasFunctions || !isRepeatable(module, x)) return undefined
  const ofModule = plans.get(module) ?? new Map<string, Plan>()
  plans.set(module, ofModule)
  const key = `${String(needsInputGradient)} ${x.dtype} ${x.shape.join()}`
  let plan = ofModule.get(key)
  if (plan?.eager !== eager || !plan.isFor(module)) {
    if (plan === undefined && ofModule.size >= MOST_PLANS) return undefined
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
    if (this.forward !== undefined) return new RepeatedPass(this, x)
    const isTraced = this.#canRepeat && !this.#isFirst
    this.#isFirst = false
    return isTraced ? new TracedPass(this, x) : undefined
  }

  /** Makes TensorFlow functions from a traced pass. The first `length` nodes are the forward pass. */
  learn(trace: Trace, output: string | undefined, length: number, define: () => void): void {
    if (!this.#canRepeat) return
    try {
      if (!trace.isWhole || output === undefined) throw new Error('a value is from outside')
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
class TracedPass implements Recording {
  readonly #plan: Plan
  readonly #trace: Trace
  readonly #pass: Recording
  readonly #output: string | undefined
  readonly #length: number
  #first: { readonly length: number; readonly outputs: readonly string[] } | undefined

  constructor(plan: Plan, x: Tensor) {
    this.#plan = plan
    this.#trace = new Trace(plan.eager)
    this.#trace.addArgument(x)
    for (const { value } of plan.parameters) this.#trace.addArgument(value)
    this.#pass = this.#trace.run(() => plan.record(x))
    ;[this.#output] = this.#trace.keysOf([this.#pass.value])
    this.#length = this.#trace.length
  }

  get value(): Tensor {
    return this.#pass.value
  }

  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
    this.#trace.addArgument(dy)
    const { dx, gradients } = this.#run((take) => this.#pass.backward(dy, take))
    const parameters = gradients.map(([parameter]) => parameter)
    const hasInputGradient = dx !== undefined
    const tensors = gradients.map(([, gradient]) => gradient)
    const outputs = this.#trace.keysOf(hasInputGradient ? [dx, ...tensors] : tensors)
    this.#learn(() => {
      const run = this.#trace.define(outputs, this.#length)
      this.#plan.backward = { run, hasInputGradient, parameters }
    })
    for (const [parameter, gradient] of gradients) onGradient(parameter, gradient)
    return dx
  }

  backwardInput(dy: Tensor): Tensor | undefined {
    this.#trace.addArgument(dy)
    const { dx } = this.#run(() => this.#pass.backwardInput!(dy))
    const outputs = this.#trace.keysOf(dx === undefined ? [] : [dx])
    this.#first = { length: this.#trace.length, outputs }
    return dx
  }

  backwardParameters(onGradient: GradientListener): void {
    const { gradients } = this.#run((take) => {
      this.#pass.backwardParameters!(take)
      return undefined
    })
    const outputs = this.#trace.keysOf(gradients.map(([, gradient]) => gradient))
    const { length, outputs: ofInput } = this.#first!
    this.#learn(() => {
      const second = this.#trace.define(outputs, length)
      const kept = second.inputs.filter((key) => this.#trace.isMade(key, this.#length, length))
      const first = this.#trace.define([...ofInput, ...kept], this.#length)
      const parameters = gradients.map(([parameter]) => parameter)
      this.#plan.halves = [
        { run: first, hasInputGradient: ofInput.length > 0, parameters: [] },
        { run: second, hasInputGradient: false, parameters },
      ]
    })
    for (const [parameter, gradient] of gradients) onGradient(parameter, gradient)
  }

  dispose(): void {
    this.#pass.dispose()
  }

  /** The memory of sharded parameters is freed after a forward pass and reallocated at another address. */
  #renewParameters(): void {
    for (const [i, { value }] of this.#plan.parameters.entries()) {
      if (!value.isDisposed) this.#trace.renew(keyOfArgument(1 + i), value)
    }
  }

  /** Collects the gradients before calling the listener, so that the trace excludes the listener's work. */
  #run(compute: (take: GradientListener) => Tensor | undefined) {
    this.#renewParameters()
    const gradients: [Parameter, Tensor][] = []
    const take = (parameter: Parameter, gradient: Tensor): void => {
      gradients.push([parameter, gradient])
    }
    return { dx: this.#trace.run(() => compute(take)), gradients }
  }

  #learn(define: () => void): void {
    this.#plan.learn(this.#trace, this.#output, this.#length, define)
  }
}

class RepeatedPass implements Recording {
  readonly value: Tensor
  readonly #plan: Plan
  readonly #input: Tensor
  /** The values that parameters had in the forward pass, by key. */
  readonly #parameters = new Map<string, Tensor>()
  /** Results that the backward functions need, and the bits of an int32 input, by key. */
  readonly #kept = new Map<string, Handle>()
  #outputGradient: Tensor | undefined
  /** The pass on the tape, if the plan has not traced this kind of backward pass yet. */
  #traced: TracedPass | undefined
  #state: 'recorded' | 'halved' | 'spent' | 'disposed' = 'recorded'

  constructor(plan: Plan, x: Tensor) {
    this.#plan = plan
    this.#input = tf.keep(tf.clone(x))
    try {
      for (const key of plan.needed) {
        this.#parameters.set(key, tf.keep(tf.clone(plan.parameterOf(key)!.value)))
      }
      const { forward, eager } = plan
      if (eager.takesBits(x)) this.#kept.set(INPUT, eager.bitsOf(x))
      const find = (key: string): Handle =>
        this.#kept.get(key) ??
        eager.handleOf(key === INPUT ? this.#input : plan.parameterOf(key)!.value)
      this.value = this.#call(forward!, forward!.inputs.map(find), 1)[0]!
    } catch (error) {
      this.#free()
      throw error
    }
  }

  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
    this.#begin(dy)
    this.#state = 'spent'
    const step = this.#plan.backward
    if (step === undefined || !this.#has(step)) return this.#record().backward(dy, onGradient)
    return this.#step(step, onGradient)
  }

  backwardInput(dy: Tensor): Tensor | undefined {
    this.#begin(dy)
    this.#state = 'halved'
    const first = this.#plan.halves?.[0]
    if (first === undefined || !this.#has(first)) return this.#record().backwardInput(dy)
    return this.#step(first, () => undefined)
  }

  backwardParameters(onGradient: GradientListener): void {
    if (this.#state !== 'halved') throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
    this.#state = 'spent'
    if (this.#traced === undefined) this.#step(this.#plan.halves![1], onGradient)
    else this.#traced.backwardParameters(onGradient)
  }

  dispose(): void {
    if (this.#state === 'disposed') return
    this.#state = 'disposed'
    this.#traced?.dispose()
    this.#free()
    this.value.dispose()
  }

  #begin(dy: Tensor): void {
    if (this.#state !== 'recorded') throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
    checkOutputGradient(dy, this.value)
    this.#outputGradient = tf.keep(tf.clone(dy))
  }

  #record(): TracedPass {
    this.#traced = new TracedPass(this.#plan, this.#input)
    return this.#traced
  }

  /** Whether all inputs of the step are available. Another plan's forward pass may have kept fewer. */
  #has({ run }: Step): boolean {
    return run.inputs.every((key) => this.#find(key) !== undefined)
  }

  #step({ run, hasInputGradient, parameters }: Step, onGradient: GradientListener) {
    const offset = hasInputGradient ? 1 : 0
    const given = run.inputs.map((key) => this.#find(key)!)
    const results = this.#call(run, given, offset + parameters.length)
    if (this.#state === 'spent') this.#free()
    parameters.forEach((parameter, i) => {
      onGradient(parameter, results[offset + i]!)
    })
    return hasInputGradient ? results[0] : undefined
  }

  /** @returns tensors of the first `count` results. The other results are kept. */
  #call(run: TracedFunction, given: readonly Handle[], count: number): Tensor[] {
    const { eager } = this.#plan
    const results = eager.call(run.definition, given)
    results.slice(count).forEach((handle, i) => this.#kept.set(run.outputs[count + i]!, handle))
    return results.slice(0, count).map((handle, i) => eager.take(handle, run.shapes[i]!))
  }

  #find(key: string): Handle | undefined {
    const { eager, outputGradient } = this.#plan
    const tensor = key === INPUT ? this.#input : this.#parameters.get(key)
    const found = key === outputGradient ? this.#outputGradient : tensor
    return this.#kept.get(key) ?? (found && eager.handleOf(found))
  }

  #free(): void {
    for (const handle of this.#kept.values()) this.#plan.eager.free(handle)
    this.#kept.clear()
    tf.dispose([this.#input, ...this.#parameters.values()])
    this.#parameters.clear()
    this.#outputGradient?.dispose()
    this.#outputGradient = undefined
  }
}
