import { timeWait, type SpanRecorder } from '@tsrun/telemetry'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../../tfjs/tfjs.ts'
import type { DeviceGroup } from '../device-group.ts'
import { labelOf, type Bucket, type Slot } from '../gradients/buckets.ts'
import { GradientExchange, trafficOf, type Traffic } from '../gradients/exchange.ts'
import type { TakenGradient } from './all-reduce.ts'

interface Filling {
  readonly bucket: Bucket
  /** By name of a parameter, until the bucket starts. */
  readonly gradients: Map<string, Tensor>
  /** In the order of the slots. */
  averages: Promise<Tensor[]> | undefined
}

/**
 * Averages gradients over the ranks of a group as `AllReduceExchange` does, but on their GPUs: a bucket is
 * one operation on the tensors themselves.
 */
export class DeviceExchange extends GradientExchange {
  readonly traffic: Traffic
  readonly #devices: DeviceGroup
  readonly #fillings: readonly Filling[]
  /** The averages of this step once they are there. */
  #averages: readonly (readonly Tensor[])[] = []

  constructor(devices: DeviceGroup, buckets: readonly Bucket[]) {
    super(buckets)
    this.#devices = devices
    this.traffic = trafficOf(buckets, Float32Array.BYTES_PER_ELEMENT)
    this.#fillings = buckets.map((bucket) => ({
      bucket,
      gradients: new Map(),
      averages: undefined,
    }))
  }

  async finished(): Promise<void> {
    this.#averages = await timeWait(this.spans, { name: 'gradients' }, () =>
      Promise.all(this.#fillings.map(({ averages }) => averages!)),
    )
  }

  /** Ends the step. @returns each average times `factor` except those of `without` */
  take(factor: number, without: ReadonlySet<string>): Map<string, TakenGradient> {
    const taken = new Map<string, TakenGradient>()
    for (const [i, { bucket }] of this.#fillings.entries()) {
      for (const [j, { parameter }] of bucket.slots.entries()) {
        const average = this.#averages[i]![j]!
        const { name, shape } = parameter
        if (without.has(name)) average.dispose()
        else taken.set(name, { values: scaled(average, factor), shape })
      }
    }
    this.clear()
    return taken
  }

  override clear(): void {
    super.clear()
    for (const filling of this.#fillings) {
      tf.dispose([...filling.gradients.values()])
      filling.gradients.clear()
      filling.averages = undefined
    }
    this.#averages = []
  }

  /** What is under way is disposed as soon as it has ended. */
  dispose(): void {
    for (const { averages } of this.#fillings) {
      averages?.then(
        (tensors) => {
          tf.dispose(tensors)
        },
        () => undefined,
      )
    }
    this.clear()
  }

  protected override get spans(): SpanRecorder | undefined {
    return this.#devices.spans
  }

  /** None: passes hand over tensors. */
  protected override partOf(): undefined {
    return undefined
  }

  protected override put(
    index: number,
    { parameter: { name } }: Slot,
    gradient: Tensor,
    isFirst: boolean,
  ): void {
    const { gradients } = this.#fillings[index]!
    const sum = isFirst ? undefined : gradients.get(name)
    const next = tf.tidy(() =>
      tf.keep(sum === undefined ? tf.clone(gradient) : tf.add(sum, gradient)),
    )
    sum?.dispose()
    gradients.set(name, next)
  }

  protected override putZeros(index: number, { parameter: { name, shape } }: Slot): void {
    this.#fillings[index]!.gradients.set(
      name,
      tf.tidy(() => tf.keep(tf.zeros([...shape]))),
    )
  }

  protected override start(index: number): void {
    const filling = this.#fillings[index]!
    const { bucket, gradients } = filling
    const tensors = bucket.slots.map(({ parameter }) => gradients.get(parameter.name)!)
    const label = labelOf(bucket, index)
    filling.averages = this.#devices.allReduce(tensors, 'avg', { label })
    // `finished` throws the error; until then nobody waits
    filling.averages.catch(() => undefined)
    tf.dispose(tensors)
    gradients.clear()
  }
}

/** Disposes `tensor` unless it is the result. */
function scaled(tensor: Tensor, factor: number): Tensor {
  if (factor === 1) return tensor
  const product = tf.tidy(() => tf.keep(tf.mul(tensor, factor)))
  tensor.dispose()
  return product
}
