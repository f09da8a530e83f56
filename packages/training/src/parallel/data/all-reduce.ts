import type { PersistentOperation, ProcessGroup } from '@tsrun/distributed'
import { timeSpan, timeWait, type SpanRecorder } from '@tsrun/distributed/record'
import { labelOf, type Bucket } from '../gradients/buckets.ts'
import { GradientExchange, trafficOf, type Traffic } from '../gradients/exchange.ts'
import { wireBytes, type GradientOptions } from '../gradients/options.ts'
import { freeAfterRun } from '../group-buffers.ts'

/** A bucket with its memory in the arena. */
interface Filling {
  readonly bucket: Bucket
  readonly gradients: Float32Array
  /** The values that are sent, if the wire format is not float32. */
  readonly encoded: Uint16Array | undefined
  readonly work: PersistentOperation
}

/** Averages gradients over a group with all-reduce: every rank gets all averages. */
export class AllReduceExchange extends GradientExchange {
  readonly traffic: Traffic
  readonly #group: ProcessGroup
  readonly #fillings: readonly Filling[]
  /** True if sending buckets during the backward pass would gain nothing. */
  readonly #isDeferred: boolean

  constructor(group: ProcessGroup, buckets: readonly Bucket[], options: GradientOptions) {
    super(buckets)
    this.#group = group
    const { wire, deterministic } = options
    this.traffic = trafficOf(buckets, wireBytes(wire))
    this.#fillings = buckets.map((bucket, index) => {
      const label = labelOf(bucket, index)
      const gradients = group.alloc('float32', bucket.length)
      if (wire === 'float32') {
        const work = group.allReduceInit(gradients, { op: 'avg', deterministic, label })
        return { bucket, gradients, encoded: undefined, work }
      }
      const encoded = group.alloc(wire, bucket.length)
      const work = group.allReduceInit(encoded, { deterministic, label })
      return { bucket, gradients, encoded, work }
    })
    this.#isDeferred = this.#fillings.every(({ work }) => work.prefersRun)
  }

  /** Exchanges the buckets that `start` deferred until the end of the backward passes. */
  async exchangeDeferred(): Promise<void> {
    if (!this.#isDeferred) return
    await timeWait(this.spans, { name: 'gradients' }, async () => {
      for (const { work } of this.#fillings) await work.run()
    })
  }

  async finished(): Promise<void> {
    await timeWait(this.spans, { name: 'gradients' }, async () => {
      for (const { work } of this.#fillings) await work.done()
    })
  }

  /**
   * Ends the step.
   *
   * @returns each average times `factor` except for the names in `without`; the arrays are the memory
   *   of the buckets, valid until the first gradient of the next step
   */
  take(factor: number, without: ReadonlySet<string>): Map<string, Float32Array> {
    const gradients = new Map<string, Float32Array>()
    timeSpan(this.spans, 'reduce', { name: 'averages', bytes: this.traffic.bytes }, () => {
      for (const filling of this.#fillings) {
        if (filling.encoded !== undefined) this.#group.convert(filling.gradients, filling.encoded)
        if (factor !== 1) this.#group.convert(filling.gradients, filling.gradients, factor)
        for (const { parameter, offset, length } of filling.bucket.slots) {
          if (without.has(parameter.name)) continue
          const values = filling.gradients.subarray(offset, offset + length)
          gradients.set(parameter.name, values)
        }
      }
    })
    this.clear()
    return gradients
  }

  /** Frees the buckets as soon as no values of other ranks can arrive in them. */
  dispose(): void {
    for (const { gradients, encoded, work } of this.#fillings) {
      freeAfterRun(work, () => {
        this.#group.free(gradients)
        if (encoded !== undefined) this.#group.free(encoded)
      })
    }
  }

  protected override get spans(): SpanRecorder | undefined {
    return this.#group.spans
  }

  protected override memoryOf(index: number): Float32Array {
    return this.#fillings[index]!.gradients
  }

  protected override start(index: number): void {
    const { gradients, encoded, work } = this.#fillings[index]!
    // divide before summing, because the largest float16 is 65504
    if (encoded !== undefined) {
      timeSpan(this.spans, 'reduce', { name: 'to 16 bits', bytes: gradients.byteLength }, () => {
        this.#group.convert(encoded, gradients, 1 / this.#group.size)
      })
    }
    if (!this.#isDeferred) work.start()
  }
}
