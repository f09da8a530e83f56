import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'
import { freeAfter } from '../lent-buffers.ts'
import { Arrivals } from './arrivals.ts'
import { labelOf, type Bucket } from './buckets.ts'
import type { WireFormat } from './wire.ts'

/** A bucket in the arena. */
interface Filling {
  readonly bucket: Bucket
  readonly gradients: Float32Array
  /** What travels, where that is another form. */
  readonly encoded: Uint16Array | undefined
  work: Work | undefined
}

export interface ReducerOptions {
  readonly wire: WireFormat
  readonly deterministic: boolean
}

/** What has travelled in a step. */
export interface Traffic {
  readonly collectives: number
  /** Bytes of the buffers that were reduced. */
  readonly bytes: number
}

/** Averages gradients over the ranks of a group, bucket by bucket, while the backward pass goes on. */
export class Reducer {
  readonly #group: ProcessGroup
  readonly #wire: WireFormat
  readonly #deterministic: boolean
  readonly #fillings: Filling[]
  readonly arrivals: Arrivals

  constructor(
    group: ProcessGroup,
    buckets: readonly Bucket[],
    { wire, deterministic }: ReducerOptions,
  ) {
    this.#group = group
    this.#wire = wire
    this.#deterministic = deterministic
    this.#fillings = buckets.map((bucket) => ({
      bucket,
      gradients: group.alloc('float32', bucket.length),
      encoded: wire === 'float32' ? undefined : group.alloc(wire, bucket.length),
      work: undefined,
    }))
    this.arrivals = new Arrivals(buckets, (index) => this.#fillings[index]!.gradients)
  }

  get traffic(): Traffic {
    const bytes = this.#wire === 'float32' ? 4 : 2
    const elements = this.#fillings.reduce((sum, { bucket }) => sum + bucket.length, 0)
    return { collectives: this.#fillings.length, bytes: elements * bytes }
  }

  /** See `Arrivals.add`. */
  add(parameter: Parameter, gradient: Tensor, isLast: boolean): void {
    this.arrivals.add(parameter, gradient, isLast)
    this.#launchReady()
  }

  /** Sends off what is not under way yet, with zeros for the gradients that are missing. */
  launchRest(): void {
    while (this.arrivals.left < this.#fillings.length) {
      this.arrivals.complete()
      this.#launchReady()
    }
  }

  /** Waits until all buckets have arrived. */
  async arrived(): Promise<void> {
    for (const { work } of this.#fillings) await work
  }

  /** Ends the step: each average times `factor`, but those of `without`, as the caller's tensors. */
  take(factor: number, without: ReadonlySet<string>): Map<string, Tensor> {
    const gradients = new Map<string, Tensor>()
    for (const filling of this.#fillings) {
      if (filling.encoded !== undefined) this.#group.convert(filling.gradients, filling.encoded)
      for (const { parameter, offset, length } of filling.bucket.slots) {
        if (without.has(parameter.name)) continue
        const source = filling.gradients.subarray(offset, offset + length)
        if (factor !== 1) for (let i = 0; i < length; i++) source[i]! *= factor
        gradients.set(parameter.name, tensorFrom(source, parameter.shape))
      }
      filling.work = undefined
    }
    this.arrivals.clear()
    return gradients
  }

  /** Gives the arena its memory back, as soon as no other rank's values come into it. */
  dispose(): void {
    for (const { gradients, encoded, work } of this.#fillings) {
      freeAfter(work, this.#group, gradients)
      if (encoded !== undefined) freeAfter(work, this.#group, encoded)
    }
  }

  #launchReady(): void {
    for (let at = this.arrivals.next(); at !== undefined; at = this.arrivals.next()) {
      this.#fillings[at]!.work = this.#launch(this.#fillings[at]!, at)
    }
  }

  #launch({ bucket, gradients, encoded }: Filling, index: number): Work {
    const [deterministic, label] = [this.#deterministic, labelOf(bucket, index)]
    if (encoded === undefined) {
      return this.#group.allReduce(gradients, { op: 'avg', deterministic, label })
    }
    // divided before they are summed: the largest float16 is 65504
    this.#group.convert(encoded, gradients, 1 / this.#group.size)
    return this.#group.allReduce(encoded, { deterministic, label })
  }
}
