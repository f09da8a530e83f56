import { shown, tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { createTensor, viewOf } from '../backend/host-memory.ts'
import { sizeOf } from '../backend/shape.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import type { OptimizerState } from './state.ts'

/** Updates parameters from their gradients. Its state is kept by parameter name. */
export interface Optimizer {
  /** Step size; may be changed between steps. */
  learningRate: number

  /**
   * Gives each parameter that has a gradient its next value; the others stay as they are. One that is
   * in the list twice, as a tied one may be, makes one step.
   *
   * @param gradients - by parameter name; tensors that were used are disposed, arrays stay as they
   *   are
   * @throws ERR_TSR_ARGUMENT when a gradient has another shape than its parameter, there are some of
   *   other parameters only, or what is kept of one has another size, as that of another model: nothing
   *   has changed then, and the tensors are the caller's
   */
  step(parameters: readonly Parameter[], gradients: Gradients): void

  /** A copy of what it keeps of each parameter that has made a step. */
  state(): Promise<OptimizerState>

  /**
   * Puts a copy of `state` in the place of what it keeps: the next step is that of the optimizer that
   * the state comes from, if the options are the same.
   *
   * @throws ERR_TSR_ARGUMENT when it is the state of another kind of optimizer; from `step`: when that
   *   of a parameter has another size
   */
  loadState(state: OptimizerState): void

  /** Frees what it keeps, and forgets it: the next step is a first one. */
  dispose(): void
}

/** Gradients by parameter name: tensors, or their values in row-major order. */
export type Gradients = ReadonlyMap<string, Tensor | Float32Array>

/**
 * Prepares the step of one parameter. What it returns writes the next values and must not allocate
 * tensors: that could detach the arrays, which are the tensors' own memory where that is in reach.
 * `next` may be the same array as `gradient`.
 */
export type Update = (
  parameter: Parameter,
) => (next: Float32Array, value: Float32Array, gradient: Float32Array) => void

/** The common part of all optimizers: checks, new tensors in the place of old ones, disposal. */
export function updateParameters(
  parameters: readonly Parameter[],
  gradients: Gradients,
  update: Update,
): void {
  for (const [parameter, gradient] of withGradients(parameters, gradients)) {
    const { value, shape } = parameter
    const isArray = ArrayBuffer.isView(gradient)
    const write = update(parameter)
    const next = createTensor(shape, (values) => {
      // Values from elsewhere first go where the result will be, within the reach of kernels.
      if (isArray) values.set(gradient)
      write(values, viewOf(value), isArray ? values : viewOf(gradient))
    })
    replaceValue(parameter, next)
    if (!isArray) gradient.dispose()
  }
}

/**
 * The parameters that have gradients, each once.
 *
 * @throws ERR_TSR_ARGUMENT when one of them does not fit, or there are gradients and none does, before
 *   anything is changed
 */
export function withGradients(
  parameters: readonly Parameter[],
  gradients: Gradients,
): [Parameter, Tensor | Float32Array][] {
  const pairs: [Parameter, Tensor | Float32Array][] = []
  for (const parameter of new Set(parameters)) {
    const gradient = gradients.get(parameter.name)
    if (gradient !== undefined) pairs.push([parameter, gradient])
  }
  for (const [parameter, gradient] of pairs) checkGradient(parameter, gradient)
  if (pairs.length === 0) checkNames(parameters, gradients)
  return pairs
}

/** @throws ERR_TSR_ARGUMENT unless they are a list and a map, as a caller without types may forget */
export function checkStep(parameters: unknown, gradients: unknown): void {
  const list = (parameters ?? {}) as { readonly [Symbol.iterator]?: unknown }
  if (typeof list[Symbol.iterator] !== 'function') {
    const expected = 'a list of them, as model.parameters'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'parameters', value: shown(parameters), expected })
  }
  const map = (gradients ?? {}) as { readonly get?: unknown }
  if (typeof map.get === 'function') return
  const expected = 'a Map of them by name of the parameter, behind the parameters'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'gradients', value: shown(gradients), expected })
}

/** @throws ERR_TSR_ARGUMENT where there are gradients, but none of these parameters */
function checkNames(parameters: readonly Parameter[], gradients: Gradients): void {
  const [first] = parameters
  const [name] = gradients.keys()
  if (first === undefined || name === undefined) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'gradients',
    value: `${name} and others, but none of these parameters`,
    expected: `names of parameters, as ${first.name}`,
  })
}

/** @throws ERR_TSR_ARGUMENT unless the gradient has the shape, or as an array the size, of the parameter */
function checkGradient({ name, shape }: Parameter, gradient: Tensor | Float32Array): void {
  const isArray = ArrayBuffer.isView(gradient)
  // not the value's size: a part of a sharded parameter makes its tensor when it is read
  if (isArray ? gradient.length === sizeOf(shape) : gradient.shape.join() === shape.join()) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: `the gradient of ${name}`,
    value: isArray
      ? `an array of ${gradient.length} values`
      : `a tensor of shape [${gradient.shape.join(', ')}]`,
    expected: `the shape of the parameter, [${shape.join(', ')}]`,
  })
}

/** @throws ERR_TSR_ARGUMENT unless `value` is a finite number within [lowest, below) */
export function checkOption(name: string, value: number, lowest: number, below = Infinity): void {
  if (typeof value === 'number' && value >= lowest && value < below) return
  const limit = below === Infinity ? 'or more' : `to below ${String(below)}`
  const expected = `a number, ${String(lowest)} ${limit}`
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(value), expected })
}
