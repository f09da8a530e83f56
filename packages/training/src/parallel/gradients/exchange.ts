import { argumentError, tsrError } from '@tsrun/core'
import { timeSpan, type SpanRecorder } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { addTo, viewOf, writeTo } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { GradientPlace } from '../../model/recording.ts'
import type { Bucket, Slot } from './buckets.ts'

/** The collectives and bytes of one step. */
export interface Traffic {
  readonly collectives: number
  /** The total size of the collectives' buffers in bytes. */
  readonly bytes: number
}

/** Returns the traffic of a step with one collective per bucket. */
export function trafficOf(buckets: readonly Bucket[], bytesPerElement: number): Traffic {
  const elements = buckets.reduce((sum, { length }) => sum + length, 0)
  return { collectives: buckets.length, bytes: elements * bytesPerElement }
}

interface Arrivals {
  readonly index: number
  readonly bucket: Bucket
  /** Names of parameters that have received a gradient. Later passes may still add to it. */
  readonly present: Set<string>
  /** Names of parameters whose gradient has all its contributions in this step. */
  readonly complete: Set<string>
}

interface Place extends Arrivals {
  readonly slot: Slot
  /** The part of the bucket's memory that holds the gradient; set by `placeOf`. */
  values: Float32Array | undefined
}

/**
 * Exchanges the gradients of a step between ranks during the backward pass, one bucket at a time.
 * Every rank starts the buckets in the same order, even if gradients are computed in different
 * orders. Subclasses implement the exchange with all-reduce or reduce-scatter.
 */
export abstract class GradientExchange {
  readonly #arrivals: readonly Arrivals[]
  readonly #places = new Map<string, Place>()
  #started = 0
  /** Names of parameters in the order in which their gradients became complete. */
  order: string[] = []

  constructor(buckets: readonly Bucket[]) {
    this.#arrivals = buckets.map((bucket, index) => ({
      index,
      bucket,
      present: new Set(),
      complete: new Set(),
    }))
    for (const arrivals of this.#arrivals) {
      for (const slot of arrivals.bucket.slots) {
        this.#places.set(slot.parameter.name, { ...arrivals, slot, values: undefined })
      }
    }
  }

  protected abstract get spans(): SpanRecorder | undefined

  protected abstract memoryOf(index: number): Float32Array

  protected abstract start(index: number): void

  /** Waits until the exchanges of all buckets have completed. */
  abstract finished(): Promise<void>

  protected get started(): number {
    return this.#started
  }

  /** The names of all parameters, bucket by bucket. */
  get names(): string[] {
    return [...this.#places.keys()]
  }

  /** For each parameter in `names`: whether it has a gradient in this step. */
  get used(): boolean[] {
    return Array.from(this.#places, ([name, { present }]) => present.has(name))
  }

  /**
   * Adds a gradient to its bucket, and starts all buckets that are now complete. Ignores the gradients of
   * frozen parameters. The caller still owns the tensor.
   *
   * @param isLast - whether no other pass of this step adds to the parameter's gradient
   * @throws ERR_TSR_GRADIENT_TWICE; ERR_TSR_ARGUMENT when the gradient does not have the parameter's
   *   shape; ERR_TSR_SYNC_READ when the backend can only read values asynchronously
   */
  add({ name, shape }: Parameter, gradient: Tensor, isLast: boolean): void {
    const place = this.#places.get(name)
    if (place === undefined) return
    const { index, slot, present, complete } = place
    if (complete.has(name)) throw tsrError('ERR_TSR_GRADIENT_TWICE', { parameter: name })
    checkShape(name, shape, gradient)
    const isFirst = !present.has(name)
    const target = this.#partOf(index, slot)
    timeSpan(this.spans, isFirst ? 'pack' : 'reduce', { name, bytes: target.byteLength }, () => {
      if (isFirst) copyAtOnce(gradient, target)
      else addTo(target, gradient)
    })
    this.#arrive(name, place, isLast)
  }

  /**
   * Returns the memory in which a backward pass can write or accumulate the gradient of a
   * parameter, instead of calling `add`. Requires buckets that keep their memory between steps.
   *
   * @returns undefined for a parameter whose gradient `add` would ignore or refuse
   */
  placeOf({ name }: Parameter): GradientPlace | undefined {
    const place = this.#places.get(name)
    if (place === undefined || place.complete.has(name)) return undefined
    place.values ??= this.#partOf(place.index, place.slot)
    return { values: place.values, adds: place.present.has(name) }
  }

  /** Reports that a gradient was written to the memory that `placeOf` returned. */
  written({ name }: Parameter, isLast: boolean): void {
    this.#arrive(name, this.#places.get(name)!, isLast)
  }

  /** Starts all buckets before index `end` that have not started. Missing gradients are sent as zeros. */
  startUntil(end = this.#arrivals.length): void {
    while (this.#started < end) {
      const { index, bucket, present, complete } = this.#arrivals[this.#started]!
      for (const slot of bucket.slots) {
        const { name } = slot.parameter
        if (!present.has(name)) this.#partOf(index, slot).fill(0)
        complete.add(name)
      }
      this.#startComplete()
    }
  }

  /**
   * Drops the gradients of this step, unless some were already sent.
   *
   * @returns whether the gradients were dropped
   */
  abandon(): boolean {
    if (this.#started > 0) return false
    this.clear()
    return true
  }

  clear(): void {
    for (const { present, complete } of this.#arrivals) {
      present.clear()
      complete.clear()
    }
    this.#started = 0
    this.order = []
  }

  #partOf(index: number, { offset, length }: Slot): Float32Array {
    return this.memoryOf(index).subarray(offset, offset + length)
  }

  #arrive(name: string, { present, complete }: Place, isLast: boolean): void {
    present.add(name)
    if (!isLast) return
    complete.add(name)
    this.order.push(name)
    this.#startComplete()
  }

  #startComplete(): void {
    for (;;) {
      const next = this.#arrivals[this.#started]
      if (next === undefined || next.complete.size < next.bucket.slots.length) return
      this.#started++
      this.start(next.index)
    }
  }
}

function checkShape(name: string, shape: readonly number[], gradient: Tensor): void {
  const [found, expected] = [gradient.shape.join(', '), shape.join(', ')]
  if (found === expected) return
  throw argumentError(`the gradient of ${name}`, `a tensor of shape [${found}]`, `[${expected}]`)
}

function copyAtOnce(gradient: Tensor, target: Float32Array): void {
  const written = writeTo(gradient, target)
  if (written === undefined) return
  written.catch(() => undefined)
  // `viewOf` throws ERR_TSR_SYNC_READ, because the values can only be read asynchronously.
  viewOf(gradient)
}
