import { argumentError, finite, having, shown } from '@tsrun/core'
import { addScaled, type UpdateArrays } from '../backend/arithmetic.ts'
import { currentBackend, isHostAccessible, repeated } from '../backend/current.ts'
import { copyHeld, isAlone, shared } from '../backend/held-values.ts'
import { createTensor, overwrite, tensorFrom, viewOf } from '../backend/host-memory.ts'
import { matchNames, namePatterns, type NamePatterns } from '../model/name-patterns.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import type { Gradient, Store, UpdatesInPlace } from '../tfjs/backend.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import {
  parameterStates,
  type Gradients,
  type HeldState,
  type OptimizerState,
  type ParameterState,
  type ParameterStates,
} from './state.ts'

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

/** Returns each parameter that has a gradient, once, together with the gradient. */
function withGradients(
  parameters: readonly Parameter[],
  gradients: Gradients,
): [Parameter, Gradient][] {
  const pairs: [Parameter, Gradient][] = []
  for (const parameter of new Set(parameters)) {
    const gradient = gradients.get(parameter.name)
    if (gradient !== undefined) pairs.push([parameter, gradient])
  }
  for (const [parameter, gradient] of pairs) checkGradient(parameter, gradient)
  if (pairs.length > 0) return pairs
  const [first] = parameters
  const [name] = gradients.keys()
  if (first === undefined || name === undefined) return pairs
  throw argumentError(
    'gradients',
    `${name} and others, but none of these parameters`,
    `the names of parameters, as ${first.name}`,
  )
}

/** Checks the arguments of a step, which untyped callers may swap. @throws ERR_TSR_ARGUMENT */
function checkStep(
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

/**
 * Writes the next values of a parameter and of its state. The gradient already includes L2 weight decay.
 * Must not allocate tensors.
 */
export type HostUpdate = (arrays: UpdateArrays) => void

/**
 * An optimizer step in operations of TensorFlow.js. Steps of the same `name` must run the same
 * operations.
 */
export interface DeviceUpdate {
  readonly name: string
  /** Numbers that may change from step to step. */
  readonly factors: readonly number[]
  /**
   * @param gradient - including L2 weight decay
   * @returns the next value, then the next state vectors; the caller disposes all other new tensors
   */
  readonly compute: (
    value: Tensor,
    gradient: Tensor,
    state: readonly Tensor[],
    factors: readonly Tensor[],
  ) => readonly Tensor[]
}

/** The base class of all optimizers: their state, and a step on each kind of backend. */
export abstract class BaseOptimizer implements Optimizer {
  learningRate: number
  readonly options: Readonly<Record<string, unknown>>
  protected readonly kept: ParameterStates
  protected readonly decayOf: (name: string) => number

  /** @param names - the names of the vectors of each parameter in the state */
  constructor(
    learningRate: number,
    options: { readonly weightDecay: number | undefined; readonly withoutDecay: NamePatterns },
    names: readonly string[],
  ) {
    this.learningRate = learningRate
    this.options = { ...options }
    this.kept = parameterStates(names)
    const isWithout = matchNames(options.withoutDecay)
    this.decayOf = (name) => (isWithout(name) ? 0 : (options.weightDecay ?? 0))
  }

  step(parameters: readonly Parameter[], gradients: Gradients): void {
    checkStep(this, parameters, gradients)
    this.kept.checkSizes(parameters, gradients)
    const pairs = withGradients(parameters, gradients)
    if (isHostAccessible()) {
      for (const [parameter, gradient] of pairs) this.#updateOnHost(parameter, gradient)
      return
    }
    const updates = this.updatesInPlace()
    if (updates !== undefined) this.#updateInPlace(pairs, updates)
    else this.#updateOnDevice(pairs)
  }

  async state(): Promise<OptimizerState> {
    const state = new Map<string, ParameterState>()
    for (const [name, { steps, values: held }] of this.holdState()) {
      const values: Record<string, Float32Array> = {}
      state.set(name, { steps, values })
      for (const [kind, vector] of Object.entries(held)) values[kind] = await copyHeld(vector)
    }
    return state
  }

  /** Returns the state without a copy, for a checkpoint. */
  holdState(): HeldState {
    return this.kept.hold()
  }

  loadState(state: OptimizerState): void {
    this.kept.load(state)
  }

  dispose(): void {
    this.kept.dispose()
  }

  /** Returns the in-place steps of the backend; undefined if the backend has none for this optimizer. */
  protected updatesInPlace(): UpdatesInPlace | undefined {
    return currentBackend().updatesInPlace?.()
  }

  /** L2 penalty: the multiple of the parameter that is added to its gradient. */
  protected addedOf(name: string): number {
    return this.decayOf(name)
  }

  protected abstract onHost(name: string): HostUpdate

  protected abstract onDevice(name: string): DeviceUpdate

  /** @param store - receives the next value, then the next state */
  protected abstract inPlace(
    updates: UpdatesInPlace,
    parameter: Parameter,
    gradient: Gradient,
    store: Store,
  ): void

  #updateInPlace(pairs: Pairs, updates: UpdatesInPlace): void {
    const run = (parameter: Parameter, gradient: Gradient) => {
      this.inPlace(updates, parameter, gradient, ([next, ...state]) => {
        parameter.value = next!
        this.kept.put(parameter.name, state)
      })
    }
    try {
      for (const [parameter, given] of pairs) {
        const added = this.addedOf(parameter.name)
        if (added === 0 && ArrayBuffer.isView(given)) {
          run(parameter, given)
          continue
        }
        const tensor = asTensor(given, parameter)
        const gradient = added === 0 ? tensor : addDecay(tensor, added, parameter.value)
        run(parameter, gradient)
        if (gradient !== tensor) gradient.dispose()
        tensor.dispose()
      }
    } finally {
      updates.finish()
    }
  }

  /** Updates a parameter whose memory the host can access. New tensors replace the old ones. */
  #updateOnHost(parameter: Parameter, gradient: Gradient): void {
    const { name, value, shape } = parameter
    const former = this.kept.tensorsOf(name, shape)
    // Write to new memory if a checkpoint in progress still holds the former values.
    const vectors = former.map((tensor) =>
      isAlone(tensor) ? tensor : createTensor(shape, () => undefined),
    )
    const added = this.addedOf(name)
    // Kernels can only access the memory of the backend, so an array is copied there.
    const own = ArrayBuffer.isView(gradient) ? undefined : shared(gradient)
    const update = (values: Float32Array) => {
      if (own === undefined) values.set(gradient as Float32Array)
      const [given, before] = [own === undefined ? values : viewOf(own), viewOf(value)]
      if (added !== 0) addScaled(values, given, added, before)
      this.onHost(name)({
        next: values,
        value: before,
        gradient: added === 0 ? given : values,
        former: former.map(viewOf),
        state: vectors.map(viewOf),
      })
    }
    try {
      if (own !== undefined) tf.dispose(gradient)
      replaceValue(parameter, own ? overwrite(own, update) : createTensor(shape, update))
    } catch (error) {
      own?.dispose()
      throw error
    }
    this.kept.put(name, vectors)
  }

  /**
   * Updates parameters on backends whose memory the host cannot access. Fetches no values. If the
   * backend can repeat recorded computations, updates parameters with equal factors as one vector.
   */
  #updateOnDevice(pairs: Pairs): void {
    const groups = new Map<string, { step: DeviceUpdate; rows: Row[] }>()
    for (const [parameter, given] of pairs) {
      const { name, value, shape } = parameter
      const step = withDecay(this.onDevice(name), this.addedOf(name))
      const key = [step.name, ...step.factors, isLarge(parameter) ? name : ''].join()
      const group = groups.get(key) ?? { step, rows: [] }
      groups.set(key, group)
      const tensors = [value, asTensor(given, parameter), ...this.kept.tensorsOf(name, shape)]
      group.rows.push({ parameter, tensors })
    }
    const isRepeated = currentBackend().repeat !== undefined
    for (const { step, rows } of groups.values()) {
      const results = isRepeated ? together(step, rows) : eachAlone(step, rows)
      for (const [i, { parameter, tensors }] of rows.entries()) {
        const [next, ...vectors] = results[i]!
        parameter.value = next!
        this.kept.put(parameter.name, vectors)
        tf.dispose([...tensors])
      }
    }
  }
}

type Pairs = ReturnType<typeof withGradients>

/** Parameters with at least this many values are updated separately: joining them costs more than calls. */
const LARGE = 2 ** 22

const isLarge = ({ shape }: Parameter) => sizeOf(shape) >= LARGE

interface Row {
  readonly parameter: Parameter
  /** The value, the gradient, and the state vectors of the parameter. */
  readonly tensors: readonly Tensor[]
}

function withDecay(update: DeviceUpdate, added: number): DeviceUpdate {
  if (added === 0) return update
  const { name, factors, compute } = update
  return {
    name: `${name} with decay`,
    factors: [...factors, added],
    compute: (value, gradient, state, numbers) =>
      compute(value, addDecay(gradient, numbers.at(-1)!, value), state, numbers),
  }
}

function eachAlone({ factors, compute }: DeviceUpdate, rows: readonly Row[]): Tensor[][] {
  return rows.map(({ tensors: [value, gradient, ...state] }) =>
    tf.tidy(() => {
      const scalars = factors.map((factor) => tf.scalar(factor))
      return compute(value!, gradient!, state, scalars).map((tensor) => tf.keep(tensor))
    }),
  )
}

function together({ name, factors, compute }: DeviceUpdate, rows: readonly Row[]): Tensor[][] {
  const width = rows[0]!.tensors.length
  const shapes = rows.map(({ parameter: { shape } }) => [...shape])
  const numbers = tf.tensor1d([...factors])
  const results = repeated(
    isLarge(rows[0]!.parameter) ? `${name} ${shapes.join()}` : name,
    [...rows.flatMap(({ tensors }) => tensors), numbers],
    (given) => {
      const [value, gradient, ...former] = Array.from({ length: width }, (_, column) =>
        tf.concat(rows.map((_, i) => tf.reshape(given[i * width + column]!, [-1]))),
      )
      const scalars =
        factors.length === 1 ? [tf.reshape(given.at(-1)!, [])] : tf.unstack(given.at(-1)!)
      const next = compute(value!, gradient!, former, scalars)
      return next.flatMap((flat) =>
        tf.split(flat, shapes.map(sizeOf)).map((part, i) => tf.reshape(part, shapes[i]!)),
      )
    },
  )
  numbers.dispose()
  return rows.map((_, i) => results.filter((_, place) => place % rows.length === i))
}

function addDecay(gradient: Tensor, decay: number | Tensor, value: Tensor): Tensor {
  return tf.tidy(() => tf.add(gradient, tf.mul(value, decay)))
}

function asTensor(gradient: Gradient, { shape }: Parameter): Tensor {
  return ArrayBuffer.isView(gradient) ? tensorFrom(gradient, shape) : gradient
}
