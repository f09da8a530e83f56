import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { addTo, viewOf, writeTo } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Bucket, Slot } from './buckets.ts'

interface Filling {
  readonly bucket: Bucket
  /** Names of parameters that have a gradient, of this or of an accumulated pass. */
  readonly filled: Set<string>
  /** Those that get no more in this step. */
  readonly ready: Set<string>
}

/** The memory of a whole bucket, which is there from its first gradient until it has left. */
export type MemoryOf = (index: number) => Float32Array

/**
 * Which gradients of a step are there. Every rank sends its buckets off in the same order, whatever
 * the order of its gradients.
 */
export class Arrivals {
  readonly #fillings: readonly Filling[]
  readonly #memoryOf: MemoryOf
  readonly #places = new Map<string, { readonly index: number; readonly slot: Slot }>()
  #left = 0
  /** Names in the order in which their gradients were complete. */
  order: string[] = []

  constructor(buckets: readonly Bucket[], memoryOf: MemoryOf) {
    this.#memoryOf = memoryOf
    this.#fillings = buckets.map((bucket) => ({ bucket, filled: new Set(), ready: new Set() }))
    for (const [index, { slots }] of buckets.entries()) {
      for (const slot of slots) this.#places.set(slot.parameter.name, { index, slot })
    }
  }

  /**
   * Adds a gradient to what there is; the tensor stays the caller's.
   *
   * @param isLast - no other pass adds to it in this step
   * @throws ERR_TSR_GRADIENT_TWICE; ERR_TSR_ARGUMENT when it has not the shape of the parameter
   */
  add({ name, shape }: Parameter, gradient: Tensor, isLast: boolean): void {
    const place = this.#places.get(name)
    if (place === undefined) return
    const { filled, ready } = this.#fillings[place.index]!
    if (ready.has(name)) throw tsrError('ERR_TSR_GRADIENT_TWICE', { parameter: name })
    checkShape(name, shape, gradient)
    const { offset, length } = place.slot
    const target = this.#memoryOf(place.index).subarray(offset, offset + length)
    if (filled.has(name)) addTo(target, gradient)
    else copyAtOnce(gradient, target)
    filled.add(name)
    if (!isLast) return
    ready.add(name)
    this.order.push(name)
  }

  /** How many buckets have left. */
  get left(): number {
    return this.#left
  }

  /** The next bucket, which has left now, if it is complete. */
  next(): number | undefined {
    const filling = this.#fillings[this.#left]
    if (filling === undefined || filling.ready.size < filling.bucket.slots.length) return undefined
    return this.#left++
  }

  /** Completes the next bucket, with zeros for what is missing. */
  complete(): void {
    const { bucket, filled, ready } = this.#fillings[this.#left]!
    const memory = this.#memoryOf(this.#left)
    for (const { parameter, offset, length } of bucket.slots) {
      if (!filled.has(parameter.name)) memory.fill(0, offset, offset + length)
      ready.add(parameter.name)
    }
  }

  /** By parameter, in the order of the buckets, whether it has got a gradient in this step. */
  get used(): boolean[] {
    return this.#fillings.flatMap(({ bucket, filled }) =>
      bucket.slots.map(({ parameter }) => filled.has(parameter.name)),
    )
  }

  /** The parameters, in the order of the buckets. */
  get names(): string[] {
    return [...this.#places.keys()]
  }

  /** Forgets this step. */
  clear(): void {
    for (const { filled, ready } of this.#fillings) {
      filled.clear()
      ready.clear()
    }
    this.#left = 0
    this.order = []
  }
}

function checkShape(name: string, shape: readonly number[], gradient: Tensor): void {
  const [found, expected] = [gradient.shape.join(', '), shape.join(', ')]
  if (found === expected) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: `the gradient of ${name}`,
    value: `a tensor of shape [${found}]`,
    expected: `[${expected}]`,
  })
}

/** @throws ERR_TSR_SYNC_READ where the backend would have to be waited for */
function copyAtOnce(gradient: Tensor, target: Float32Array): void {
  const written = writeTo(gradient, target)
  if (written === undefined) return
  written.catch(() => undefined)
  viewOf(gradient)
}
