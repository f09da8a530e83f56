import { sizeOf } from '../../backend/shape.ts'
import type { Parameter } from '../../model/parameter.ts'

/** Where the gradient of a parameter stands in its bucket, in elements. */
export interface Slot {
  readonly parameter: Parameter
  readonly offset: number
  readonly length: number
}

/** Gradients that travel together. */
export interface Bucket {
  readonly slots: readonly Slot[]
  /** Elements of float32. */
  readonly length: number
}

export interface BucketSizes {
  /** Bytes of float32 up to which gradients share a bucket. */
  readonly bytes: number
  /** The same of the first bucket: it is what the network waits for. */
  readonly firstBytes: number
}

const ELEMENT = 4

/**
 * Cuts parameters into buckets, in the order in which their gradients come. A bucket takes gradients
 * until it is full; one that is larger than a bucket has it for itself.
 */
export function planBuckets(
  parameters: readonly Parameter[],
  { bytes, firstBytes }: BucketSizes,
): Bucket[] {
  const buckets: Bucket[] = []
  let slots: Slot[] = []
  let length = 0
  const close = (): void => {
    if (slots.length > 0) buckets.push({ slots, length })
    slots = []
    length = 0
  }
  for (const parameter of parameters) {
    const size = sizeOf(parameter.shape)
    const limit = buckets.length === 0 ? firstBytes : bytes
    if (length > 0 && (length + size) * ELEMENT > limit) close()
    slots.push({ parameter, offset: length, length: size })
    length += size
  }
  close()
  return buckets
}

/** What stands before the errors of a bucket's collectives. */
export function labelOf({ slots }: Bucket, index: number): string {
  const more = slots.length > 1 ? ` to ${slots.at(-1)!.parameter.name}` : ''
  return `gradients, bucket ${index}: ${slots[0]!.parameter.name}${more}`
}
