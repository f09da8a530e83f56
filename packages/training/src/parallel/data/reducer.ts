import { tsrError } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { addTo, tensorFrom, writeTo } from '../../backend/host-memory.ts'
import type { Parameter } from '../../nn/parameter.ts'
import type { Bucket, Slot } from './buckets.ts'
import { decode, encode, type WireFormat } from './wire.ts'

/** A bucket in the arena, and what is known of its gradients in this step. */
interface Filling {
  readonly bucket: Bucket
  readonly gradients: Float32Array
  /** What travels, where that is another form. */
  readonly encoded: Uint16Array | undefined
  /** Parameters that have a gradient, of this or of an accumulated pass. */
  readonly filled: Set<Parameter>
  /** Parameters whose gradient of the last pass is there. */
  readonly ready: Set<Parameter>
  work: Work | undefined
}

export interface ReducerOptions {
  readonly wire: WireFormat
  readonly deterministic: boolean
  /** Whether float32 gradients are averaged on their way, and not summed; the same on all ranks. */
  readonly averages: () => boolean
}

/** What has travelled in a step. */
export interface Traffic {
  readonly collectives: number
  /** Bytes of the buffers that were reduced. */
  readonly bytes: number
}

/**
 * Sums gradients over the ranks of a group, bucket by bucket, while the backward pass goes on. Every
 * rank starts its buckets in the same order, whatever the order of its gradients.
 */
export class Reducer {
  readonly #group: ProcessGroup
  readonly #wire: WireFormat
  readonly #deterministic: boolean
  readonly #averages: () => boolean
  readonly #fillings: Filling[]
  readonly #places = new Map<string, { readonly filling: Filling; readonly slot: Slot }>()
  #launched = 0
  /** Names in the order in which their gradients came in this step. */
  arrivals: string[] = []

  constructor(
    group: ProcessGroup,
    buckets: readonly Bucket[],
    { wire, deterministic, averages }: ReducerOptions,
  ) {
    this.#group = group
    this.#wire = wire
    this.#deterministic = deterministic
    this.#averages = averages
    this.#fillings = buckets.map((bucket) => ({
      bucket,
      gradients: group.alloc('float32', bucket.length),
      encoded: wire === 'float32' ? undefined : group.alloc(wire, bucket.length),
      filled: new Set(),
      ready: new Set(),
      work: undefined,
    }))
    for (const filling of this.#fillings) {
      for (const slot of filling.bucket.slots) {
        this.#places.set(slot.parameter.name, { filling, slot })
      }
    }
  }

  get buckets(): readonly Bucket[] {
    return this.#fillings.map(({ bucket }) => bucket)
  }

  get traffic(): Traffic {
    const bytes = this.#wire === 'float32' ? 4 : 2
    const elements = this.#fillings.reduce((sum, { bucket }) => sum + bucket.length, 0)
    return { collectives: this.#fillings.length, bytes: elements * bytes }
  }

  /** Whether any bucket is under way. */
  get isUnderWay(): boolean {
    return this.#launched > 0
  }

  /**
   * Adds a gradient to what there is, and disposes it.
   *
   * @param isLast - no other pass adds to it in this step
   */
  add(parameter: Parameter, gradient: Tensor, isLast: boolean): void {
    const place = this.#places.get(parameter.name)
    try {
      if (place === undefined) return
      const { filling, slot } = place
      if (filling.ready.has(parameter)) {
        throw tsrError('ERR_TSR_GRADIENT_TWICE', { parameter: parameter.name })
      }
      const { offset, length } = slot
      const target = filling.gradients.subarray(offset, offset + length)
      if (filling.filled.has(parameter)) addTo(target, gradient)
      else {
        void writeTo(gradient, target)
        filling.filled.add(parameter)
      }
      if (!isLast) return
      filling.ready.add(parameter)
      this.arrivals.push(parameter.name)
    } finally {
      gradient.dispose()
    }
    this.#launchReady()
  }

  /** The parameters that have got no gradient in this step. */
  get missing(): string[] {
    return this.#fillings.flatMap(({ bucket, filled }) =>
      bucket.slots
        .filter(({ parameter }) => !filled.has(parameter))
        .map(({ parameter }) => parameter.name),
    )
  }

  /** Sends off what is not under way yet, with zeros for the gradients that are missing. */
  launchRest(): void {
    for (const { bucket, gradients, filled, ready } of this.#fillings.slice(this.#launched)) {
      for (const { parameter, offset, length } of bucket.slots) {
        if (!filled.has(parameter)) gradients.fill(0, offset, offset + length)
        filled.add(parameter)
        ready.add(parameter)
      }
    }
    this.#launchReady()
  }

  /** Waits for all buckets; each gradient times `factor` is a tensor of the caller's. */
  async take(factor: number): Promise<Map<string, Tensor>> {
    const gradients = new Map<string, Tensor>()
    for (const { work } of this.#fillings) await work
    for (const filling of this.#fillings) {
      if (filling.encoded !== undefined) this.#decode(filling, filling.encoded)
      for (const { parameter, offset, length } of filling.bucket.slots) {
        const source = filling.gradients.subarray(offset, offset + length)
        if (factor !== 1) for (let i = 0; i < length; i++) source[i]! *= factor
        gradients.set(parameter.name, tensorFrom(source, parameter.shape))
      }
      filling.filled.clear()
      filling.ready.clear()
      filling.work = undefined
    }
    this.#launched = 0
    this.arrivals = []
    return gradients
  }

  /** Gives the arena its memory back. */
  dispose(): void {
    for (const { gradients, encoded } of this.#fillings) {
      this.#group.free(gradients)
      if (encoded !== undefined) this.#group.free(encoded)
    }
  }

  #launchReady(): void {
    for (;;) {
      const filling = this.#fillings[this.#launched]
      if (filling === undefined || filling.ready.size < filling.bucket.slots.length) return
      filling.work = this.#launch(filling, this.#launched)
      this.#launched++
    }
  }

  #launch({ bucket, gradients, encoded }: Filling, index: number): Work {
    const names = bucket.slots.map(({ parameter }) => parameter.name)
    const more = names.length > 1 ? ` to ${names.at(-1)!}` : ''
    const label = `gradients, bucket ${index}: ${names[0]!}${more}`
    const deterministic = this.#deterministic
    if (encoded === undefined || this.#wire === 'float32') {
      const op = this.#averages() ? 'avg' : 'sum'
      return this.#group.allReduce(gradients, { op, deterministic, label })
    }
    encode(this.#wire, encoded, gradients)
    return this.#group.allReduce(encoded, { dtype: this.#wire, deterministic, label })
  }

  #decode({ gradients }: Filling, encoded: Uint16Array): void {
    if (this.#wire !== 'float32') decode(this.#wire, gradients, encoded)
  }
}
