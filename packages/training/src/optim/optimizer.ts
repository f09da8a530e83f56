import { argumentError, finite, having, shown } from '@tsrun/core'
import { matchNames, namePatterns, type NamePatterns } from '../model/name-patterns.ts'
import type { Parameter } from '../model/parameter.ts'
import type { Gradient } from '../tfjs/backend.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import type { Gradients, OptimizerState } from './state.ts'

/** Updates parameters from their gradients. Stores its state by parameter name. */
export interface Optimizer {
  /** The step size; may be changed between steps. */
  learningRate: number

  /** All options but the learning rate. They must be equal on all replicas. */
  readonly options?: Readonly<Record<string, unknown>>

  /**
   * Updates each parameter that has a gradient. Parameters without a gradient keep their values. A
   * parameter that is listed twice, such as a tied one, is updated once.
   *
   * @param gradients - by parameter name; tensors that are used are disposed, arrays are not
   *   changed
   * @throws ERR_TSR_ARGUMENT when the learning rate is not a number from 0; when a gradient and its
   *   parameter have different shapes; when there are gradients but none of these parameters; or
   *   when the state of a parameter has another size, because it belongs to another model. Then
   *   nothing is changed, and the caller still owns the tensors.
   */
  step(parameters: readonly Parameter[], gradients: Gradients): void

  /** Returns a copy of the state of each updated parameter. */
  state(): Promise<OptimizerState>

  /**
   * Replaces the state with a copy of `state`. With the same options, the next step equals the next
   * step of the optimizer that returned `state`.
   *
   * @throws ERR_TSR_ARGUMENT when the state belongs to another kind of optimizer. If the state of a
   *   parameter has another size, `step` throws.
   */
  loadState(state: OptimizerState): void

  /** Frees the state. The next step is the first step again. */
  dispose(): void
}

/**
 * Returns each parameter that has a gradient, once, together with the gradient.
 *
 * @throws ERR_TSR_ARGUMENT when a gradient does not fit its parameter, or when there are gradients
 *   but none of these parameters
 */
export function withGradients(
  parameters: readonly Parameter[],
  gradients: Gradients,
): [Parameter, Gradient][] {
  const pairs: [Parameter, Gradient][] = []
  for (const parameter of new Set(parameters)) {
    const gradient = gradients.get(parameter.name)
    if (gradient !== undefined) pairs.push([parameter, gradient])
  }
  for (const [parameter, gradient] of pairs) checkGradient(parameter, gradient)
  if (pairs.length === 0) checkNames(parameters, gradients)
  return pairs
}

/**
 * Checks the arguments of a step, which untyped callers may swap.
 *
 * @throws ERR_TSR_ARGUMENT unless the arguments are a list and a map, and the learning rate is a
 *   number
 */
export function checkStep(
  { learningRate }: Pick<Optimizer, 'learningRate'>,
  parameters: unknown,
  gradients: unknown,
): void {
  factorRule.check('learningRate', learningRate)
  const list = (parameters ?? {}) as { readonly [Symbol.iterator]?: unknown }
  if (typeof list[Symbol.iterator] !== 'function') {
    throw argumentError(
      'parameters',
      shown(parameters),
      'a list of parameters, as model.parameters',
    )
  }
  gradientsRule.check('gradients', gradients)
}

const gradientsRule = having<Map<string, Gradient>>(
  ['get'],
  'a Map of gradients by parameter name, after the parameters',
)

/** @throws ERR_TSR_ARGUMENT when there are gradients, but none of these parameters */
function checkNames(parameters: readonly Parameter[], gradients: Gradients): void {
  const [first] = parameters
  const [name] = gradients.keys()
  if (first === undefined || name === undefined) return
  throw argumentError(
    'gradients',
    `${name} and others, but none of these parameters`,
    `the names of parameters, as ${first.name}`,
  )
}

/**
 * @throws ERR_TSR_ARGUMENT unless a tensor has the shape of the parameter, or an array has its size
 */
function checkGradient({ name, shape }: Parameter, gradient: Gradient): void {
  const isArray = ArrayBuffer.isView(gradient)
  // Compare with `shape`: reading the parameter's value would allocate the tensor of a sharded parameter.
  if (isArray ? gradient.length === sizeOf(shape) : gradient.shape.join() === shape.join()) return
  throw argumentError(
    `the gradient of ${name}`,
    isArray
      ? `an array of ${gradient.length} values`
      : `a tensor of shape [${gradient.shape.join(', ')}]`,
    `the shape of the parameter, [${shape.join(', ')}]`,
  )
}

/** Weight decay, an option of every optimizer. */
export interface DecayOptions {
  /** L2 penalty: this multiple of the parameter is added to the gradient; default 0. */
  readonly weightDecay?: number
  /**
   * The parameters without weight decay: patterns of names such as `'**.bias'`, or a predicate. `*`
   * matches one part between dots, and `**` any number of parts. Default: none.
   */
  readonly withoutDecay?: NamePatterns
}

/** Validates a learning rate, or another factor that may be 0. */
export const factorRule = finite({ from: 0 })

export const decayRules = {
  weightDecay: factorRule.optional(),
  withoutDecay: namePatterns.default([]),
}

/** @returns a function that maps the name of a parameter to its weight decay */
export function decayByName(
  weightDecay: number,
  withoutDecay: NamePatterns,
): (name: string) => number {
  const isWithout = matchNames(withoutDecay)
  return (name) => (isWithout(name) ? 0 : weightDecay)
}
