import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../backend/host-memory.ts'
import { hostVector, type HostVector } from '../backend/arithmetic.ts'
import type { Gradient } from '../tfjs/backend.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import type { Parameter } from '../model/parameter.ts'

/** Gradients by parameter name, as tensors or as arrays of their values in row-major order. */
export type Gradients = ReadonlyMap<string, Gradient>

/** The state of an optimizer for one parameter. */
export interface ParameterState {
  /** The number of updates of the parameter. */
  readonly steps: number
  /**
   * State vectors by name, for example `mean`. Each has as many values as the parameter, in
   * row-major order.
   */
  readonly values: Readonly<Record<string, Float32Array>>
}

/** The state of an optimizer, by the names of the parameters. */
export type OptimizerState = ReadonlyMap<string, ParameterState>

type Vector = HostVector | Tensor

/**
 * The state of an optimizer. It lies where the tensors of the parameters lie, and can be copied to
 * arrays.
 */
export class ParameterStates {
  readonly #names: readonly string[]
  readonly #steps = new Map<string, number>()
  readonly #vectors = new Map<string, Vector>()
  /** Loaded values that no step has used yet: only a step knows the shapes of parameters. */
  readonly #loaded = new Map<string, Float32Array>()
  readonly #numbers = new Map<string, { values: readonly number[]; tensor: Tensor }>()

  /** @param names - the names of the state vectors of each parameter */
  constructor(names: readonly string[]) {
    this.#names = names
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
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: `the state of ${name} in the optimizer`,
        value: `one of ${String(kept)} values`,
        expected: `${String(sizeOf(shape))} values, as many as the parameter has: each model needs its own optimizer, created after the model was sharded`,
      })
    }
  }

  /** Counts an update of a parameter. Returns the number of the update, from 1. */
  nextStep(parameter: string): number {
    const step = (this.#steps.get(parameter) ?? 0) + 1
    this.#steps.set(parameter, step)
    return step
  }

  /**
   * Returns a state vector of a parameter in host memory. A missing vector is created as zeros (`isNew`).
   */
  onHost(parameter: string, name: string, length: number): { vector: HostVector; isNew: boolean } {
    const key = keyOf(parameter, name)
    const former = this.#vectors.get(key)
    if (former !== undefined) return { vector: former as HostVector, isNew: false }
    const vector = hostVector(length)
    const loaded = this.#takeLoaded(parameter, name)
    if (loaded !== undefined) vector.values.set(loaded)
    this.#vectors.set(key, vector)
    return { vector, isNew: loaded === undefined }
  }

  /**
   * Removes the state tensors of a parameter and returns them, or zeros at the first update. The
   * caller stores the updated tensors by `putOnDevice`.
   */
  takeFromDevice(parameter: string, shape: readonly number[]): Tensor[] {
    return this.#names.map((name) => {
      const key = keyOf(parameter, name)
      const former = this.#vectors.get(key) as Tensor | undefined
      this.#vectors.delete(key)
      if (former !== undefined) return former
      const loaded = this.#takeLoaded(parameter, name)
      return tensorFrom(loaded ?? new Float32Array(sizeOf(shape)), shape)
    })
  }

  /** @param tensors - in the order in which `takeFromDevice` returned them */
  putOnDevice(parameter: string, tensors: readonly Tensor[]): void {
    for (const [i, name] of this.#names.entries()) {
      this.#vectors.set(keyOf(parameter, name), tensors[i]!)
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

  async read(): Promise<OptimizerState> {
    const state = new Map<string, { steps: number; values: Record<string, Float32Array> }>()
    const fetched: Promise<void>[] = []
    for (const [parameter, steps] of this.#steps) {
      const values: Record<string, Float32Array> = {}
      for (const name of this.#names) {
        const key = keyOf(parameter, name)
        const vector = this.#vectors.get(key) ?? this.#loaded.get(key)
        if (vector === undefined) continue
        if (ArrayBuffer.isView(vector)) values[name] = vector.slice()
        else if ('values' in vector) values[name] = vector.values.slice()
        else {
          values[name] = new Float32Array(vector.size)
          const written = writeTo(vector, values[name])
          if (written !== undefined) fetched.push(written)
        }
      }
      state.set(parameter, { steps, values })
    }
    await Promise.all(fetched)
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
    for (const vector of this.#vectors.values()) if ('dispose' in vector) vector.dispose()
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
    if (ArrayBuffer.isView(vector)) return vector.length
    return 'values' in vector ? vector.values.length : vector.size
  }

  #takeLoaded(parameter: string, name: string): Float32Array | undefined {
    const key = keyOf(parameter, name)
    const loaded = this.#loaded.get(key)
    this.#loaded.delete(key)
    return loaded
  }

  #check(parameter: string, steps: number, values: ParameterState['values']): void {
    const found = Object.keys(values)
    const sizes = new Set(Object.values(values).map(({ length }) => length))
    const isOurs = found.sort().join() === [...this.#names].sort().join() && sizes.size < 2
    if (isOurs && Number.isSafeInteger(steps) && steps >= 0) return
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: `the state of ${parameter}`,
      value: `${String(steps)} steps, ${found.join(', ') || 'no vectors'}`,
      expected: `a number of steps, ${this.#names.join(', ') || 'no vectors'}, as this kind of optimizer has; it is the state of another kind`,
    })
  }
}

function keyOf(parameter: string, name: string): string {
  return `${parameter}\n${name}`
}
