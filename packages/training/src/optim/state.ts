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

/** Like `OptimizerState`, with references in place of copies. The caller releases them. */
export type HeldState = ReadonlyMap<string, ParameterState<HeldValues>>

/** Frees the state of optimizers that were not disposed. */
const lost = new FinalizationRegistry<Map<string, Tensor>>((vectors) => {
  tf.dispose([...vectors.values()])
})

export type ParameterStates = ReturnType<typeof parameterStates>

/**
 * Creates the state of an optimizer. It lies where the tensors of the parameters lie, and can be copied
 * to arrays.
 *
 * @param names - the names of the state vectors of each parameter
 */
export function parameterStates(names: readonly string[]) {
  const stepsOf = new Map<string, number>()
  const vectors = new Map<string, Tensor>()
  /** Loaded values that no step has used yet: only a step knows the shapes of parameters. */
  const loaded = new Map<string, Float32Array>()
  const reused = new Map<string, { values: readonly number[]; tensor: Tensor }>()

  const vectorOf = (parameter: string, name: string): Tensor | Float32Array | undefined => {
    const key = keyOf(parameter, name)
    return vectors.get(key) ?? loaded.get(key)
  }
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
    for (const vector of vectors.values()) vector.dispose()
    for (const { tensor } of reused.values()) tensor.dispose()
    for (const map of [reused, vectors, loaded, stepsOf]) map.clear()
  }

  const states = {
    /**
     * Checks sizes, because the state may belong to another model. Call this before a step changes
     * anything.
     *
     * @throws ERR_TSR_ARGUMENT when a parameter with a gradient has another size than its state
     */
    checkSizes(parameters: Iterable<Parameter>, gradients: Gradients) {
      const [first] = names
      if (first === undefined) return
      for (const { name, shape } of parameters) {
        const vector = vectorOf(name, first)
        if (vector === undefined || !gradients.has(name)) continue
        const kept = ArrayBuffer.isView(vector) ? vector.length : vector.size
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
      return names.map((name) => {
        const key = keyOf(parameter, name)
        const kept = vectors.get(key)
        if (kept !== undefined) return kept
        const tensor = tensorFrom(loaded.get(key) ?? new Float32Array(sizeOf(shape)), shape)
        loaded.delete(key)
        vectors.set(key, tensor)
        return tensor
      })
    },

    /** Replaces the state tensors of a parameter. @param tensors - as `tensorsOf` returns them */
    put(parameter: string, tensors: readonly Tensor[]) {
      for (const [i, name] of names.entries()) {
        const key = keyOf(parameter, name)
        const former = vectors.get(key)
        if (former !== tensors[i]) former?.dispose()
        vectors.set(key, tensors[i]!)
      }
    },

    /** Returns a tensor of `values`. The tensor is reused until the values change. */
    numbers(update: string, values: readonly number[]) {
      const kept = reused.get(update)
      if (kept?.values.join() === values.join()) return kept.tensor
      const tensor = tensorFrom(Float32Array.from(values), [values.length])
      kept?.tensor.dispose()
      reused.set(update, { values, tensor })
      return tensor
    },

    hold(): HeldState {
      const state = new Map<string, ParameterState<HeldValues>>()
      for (const [parameter, steps] of stepsOf) {
        const values: Record<string, HeldValues> = {}
        for (const name of names) {
          const vector = vectorOf(parameter, name)
          if (vector === undefined) continue
          values[name] = ArrayBuffer.isView(vector) ? holdArray(vector) : holdTensor(vector)
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
        for (const [name, array] of Object.entries(values)) {
          loaded.set(keyOf(parameter, name), array.slice())
        }
      }
    },

    dispose,
  }
  lost.register(states, vectors)
  return states
}

function keyOf(parameter: string, name: string): string {
  return `${parameter}\n${name}`
}
