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

/**
 * The state of an optimizer. It lies where the tensors of the parameters lie, and can be copied to
 * arrays.
 */
export class ParameterStates {
  readonly #names: readonly string[]
  readonly #steps = new Map<string, number>()
  readonly #vectors = new Map<string, Tensor>()
  /** Loaded values that no step has used yet: only a step knows the shapes of parameters. */
  readonly #loaded = new Map<string, Float32Array>()
  readonly #numbers = new Map<string, { values: readonly number[]; tensor: Tensor }>()

  /** @param names - the names of the state vectors of each parameter */
  constructor(names: readonly string[]) {
    this.#names = names
    lost.register(this, this.#vectors)
  }

  /**
   * Checks sizes, because the state may belong to another model. Call this before a step changes
   * anything.
   *
   * @throws ERR_TSR_ARGUMENT when a parameter with a gradient has another size than its state
   */
  checkSizes(parameters: Iterable<Parameter>, gradients: Gradients): void {
    for (const { name, shape } of parameters) {
      const kept = this.#sizeOf(name)
      if (kept === undefined || kept === sizeOf(shape) || !gradients.has(name)) continue
      throw argumentError(
        `the state of ${name} in the optimizer`,
        `one of ${kept} values`,
        `${sizeOf(shape)} values, as many as the parameter has: each model needs its own optimizer, created after the model was sharded`,
      )
    }
  }

  /** Counts an update of a parameter. Returns the number of the update, from 1. */
  nextStep(parameter: string): number {
    const step = (this.#steps.get(parameter) ?? 0) + 1
    this.#steps.set(parameter, step)
    return step
  }

  /** Returns the state tensors of a parameter, or zeros at the first update. */
  tensorsOf(parameter: string, shape: readonly number[]): Tensor[] {
    return this.#names.map((name) => {
      const key = keyOf(parameter, name)
      const kept = this.#vectors.get(key)
      if (kept !== undefined) return kept
      const loaded = this.#loaded.get(key) ?? new Float32Array(sizeOf(shape))
      this.#loaded.delete(key)
      const tensor = tensorFrom(loaded, shape)
      this.#vectors.set(key, tensor)
      return tensor
    })
  }

  /** Replaces the state tensors of a parameter. @param tensors - as `tensorsOf` returns them */
  put(parameter: string, tensors: readonly Tensor[]): void {
    for (const [i, name] of this.#names.entries()) {
      const key = keyOf(parameter, name)
      const former = this.#vectors.get(key)
      if (former !== tensors[i]) former?.dispose()
      this.#vectors.set(key, tensors[i]!)
    }
  }

  /** Returns a tensor of `values`. The tensor is reused until the values change. */
  numbers(update: string, values: readonly number[]): Tensor {
    const kept = this.#numbers.get(update)
    if (kept?.values.join() === values.join()) return kept.tensor
    const tensor = tensorFrom(Float32Array.from(values), [values.length])
    kept?.tensor.dispose()
    this.#numbers.set(update, { values, tensor })
    return tensor
  }

  hold(): HeldState {
    const state = new Map<string, ParameterState<HeldValues>>()
    for (const [parameter, steps] of this.#steps) {
      const values: Record<string, HeldValues> = {}
      for (const name of this.#names) {
        const key = keyOf(parameter, name)
        const vector = this.#vectors.get(key) ?? this.#loaded.get(key)
        if (vector === undefined) continue
        values[name] = ArrayBuffer.isView(vector) ? holdArray(vector) : holdTensor(vector)
      }
      state.set(parameter, { steps, values })
    }
    return state
  }

  /**
   * Replaces the whole state with a copy of `state`.
   *
   * @throws ERR_TSR_ARGUMENT when the state belongs to another kind of optimizer, or when the
   *   vectors of a parameter differ in size
   */
  load(state: OptimizerState): void {
    for (const [parameter, { steps, values }] of state) this.#check(parameter, steps, values)
    this.dispose()
    for (const [parameter, { steps, values }] of state) {
      this.#steps.set(parameter, steps)
      for (const [name, array] of Object.entries(values)) {
        this.#loaded.set(keyOf(parameter, name), array.slice())
      }
    }
  }

  dispose(): void {
    for (const vector of this.#vectors.values()) vector.dispose()
    for (const { tensor } of this.#numbers.values()) tensor.dispose()
    this.#numbers.clear()
    this.#vectors.clear()
    this.#loaded.clear()
    this.#steps.clear()
  }

  #sizeOf(parameter: string): number | undefined {
    const [name] = this.#names
    if (name === undefined) return undefined
    const key = keyOf(parameter, name)
    const vector = this.#vectors.get(key) ?? this.#loaded.get(key)
    if (vector === undefined) return undefined
    return ArrayBuffer.isView(vector) ? vector.length : vector.size
  }

  #check(parameter: string, steps: number, values: ParameterState['values']): void {
    const found = Object.keys(values)
    const sizes = new Set(Object.values(values).map(({ length }) => length))
    const isOurs = found.sort().join() === [...this.#names].sort().join() && sizes.size < 2
    if (isOurs && Number.isSafeInteger(steps) && steps >= 0) return
    throw argumentError(
      `the state of ${parameter}`,
      `${steps} steps, ${found.join(', ') || 'no vectors'}`,
      `a number of steps, ${this.#names.join(', ') || 'no vectors'}, as this kind of optimizer has; it is the state of another kind`,
    )
  }
}

function keyOf(parameter: string, name: string): string {
  return `${parameter}\n${name}`
}
