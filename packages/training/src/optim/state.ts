import { argumentError } from '@tsrun/core'
import { holdArray, holdTensor, type HeldValues } from '../backend/held-values.ts'
import { tensorFrom } from '../backend/host-memory.ts'
import type { Gradient } from '../tfjs/backend.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import type { Parameter } from '../model/parameter.ts'

/** Gradients by parameter name, as tensors or as arrays of their values in row-major order. */
export type Gradients = ReadonlyMap<string, Gradient>

/** The state of an optimizer for one parameter. */
export interface ParameterState<V = Float32Array> {
  /** The number of updates of the parameter. */
  readonly steps: number
  /**
   * State vectors by name, for example `mean`. Each has as many values as the parameter, in
   * row-major order.
   */
  readonly values: Readonly<Record<string, V>>
}

/** The state of an optimizer, by the names of the parameters. */
export type OptimizerState = ReadonlyMap<string, ParameterState>

/** Like `OptimizerState`, but with references instead of copies. The caller releases them. */
export type HeldState = ReadonlyMap<string, ParameterState<HeldValues>>

/** Frees the state of optimizers that are garbage-collected without `dispose`. */
const lost = new FinalizationRegistry<Map<string, readonly Tensor[]>>((vectors) => {
  tf.dispose([...vectors.values()].flat())
})

export type ParameterStates = ReturnType<typeof parameterStates>

/**
 * Creates an optimizer state in the memory of the backend. The state can be copied to arrays.
 *
 * @param names - the names of the state vectors of each parameter
 */
export function parameterStates(names: readonly string[]) {
  const stepsOf = new Map<string, number>()
  /** The state vectors of each parameter, in the order of `names`. */
  const vectors = new Map<string, readonly Tensor[]>()
  /** Loaded values that no step has used yet: only a step knows the shapes of parameters. */
  const loaded = new Map<string, readonly Float32Array[]>()

  const check = (parameter: string, { steps, values }: ParameterState) => {
    const found = Object.keys(values)
    const sizes = new Set(Object.values(values).map(({ length }) => length))
    const isOurs = found.sort().join() === [...names].sort().join() && sizes.size < 2
    if (isOurs && Number.isSafeInteger(steps) && steps >= 0) return
    throw argumentError(
      `the state of ${parameter}`,
      `${steps} steps, ${found.join(', ') || 'no vectors'}`,
      `a number of steps, ${names.join(', ') || 'no vectors'}, as this kind of optimizer has; it is the state of another kind`,
    )
  }
  const dispose = () => {
    tf.dispose([...vectors.values()].flat())
    for (const map of [vectors, loaded, stepsOf]) map.clear()
  }

  const states = {
    /**
     * Checks sizes, because the state may belong to another model. Call this before a step changes
     * anything.
     *
     * @throws ERR_TSR_ARGUMENT when a parameter with a gradient has another size than its state
     */
    checkSizes(parameters: Iterable<Parameter>, gradients: Gradients) {
      for (const { name, shape } of parameters) {
        const kept = vectors.get(name)?.[0]?.size ?? loaded.get(name)?.[0]?.length
        if (kept === undefined || !gradients.has(name)) continue
        if (kept === sizeOf(shape)) continue
        throw argumentError(
          `the state of ${name} in the optimizer`,
          `one of ${kept} values`,
          `${sizeOf(shape)} values, as many as the parameter has: each model needs its own optimizer, created after the model was sharded`,
        )
      }
    },

    /** Counts an update of a parameter. Returns the number of the update, from 1. */
    nextStep(parameter: string) {
      const step = (stepsOf.get(parameter) ?? 0) + 1
      stepsOf.set(parameter, step)
      return step
    },

    /** Returns the state tensors of a parameter, or zeros at the first update. */
    tensorsOf(parameter: string, shape: readonly number[]) {
      const kept = vectors.get(parameter)
      if (kept !== undefined) return kept
      const values = loaded.get(parameter)
      const tensors = names.map((_, i) =>
        tensorFrom(values?.[i] ?? new Float32Array(sizeOf(shape)), shape),
      )
      loaded.delete(parameter)
      vectors.set(parameter, tensors)
      return tensors
    },

    /** Replaces the state tensors of a parameter. @param tensors - in the order of `tensorsOf` */
    put(parameter: string, tensors: readonly Tensor[]) {
      const former = vectors.get(parameter)
      former?.forEach((tensor, i) => {
        if (tensor !== tensors[i]) tensor.dispose()
      })
      vectors.set(parameter, tensors)
    },

    hold(): HeldState {
      const state = new Map<string, ParameterState<HeldValues>>()
      for (const [parameter, steps] of stepsOf) {
        const values: Record<string, HeldValues> = {}
        for (const [i, name] of names.entries()) {
          const tensor = vectors.get(parameter)?.[i]
          const array = loaded.get(parameter)?.[i]
          if (tensor !== undefined) values[name] = holdTensor(tensor)
          else if (array !== undefined) values[name] = holdArray(array)
        }
        state.set(parameter, { steps, values })
      }
      return state
    },

    /**
     * Replaces the whole state with a copy of `state`.
     *
     * @throws ERR_TSR_ARGUMENT when the state belongs to another kind of optimizer, or when the
     *   vectors of a parameter differ in size
     */
    load(state: OptimizerState) {
      for (const [parameter, own] of state) check(parameter, own)
      dispose()
      for (const [parameter, { steps, values }] of state) {
        stepsOf.set(parameter, steps)
        loaded.set(
          parameter,
          names.map((name) => values[name]!.slice()),
        )
      }
    },

    dispose,
  }
  lost.register(states, vectors)
  return states
}
