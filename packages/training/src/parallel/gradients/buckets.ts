import type { Parameter } from '../../model/parameter.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'

/*
 * The mathematics of bucketed gradients. Gradients travel together in a *bucket*, in which they lie one
 * after the other. Where ranks share the state of training, a bucket is padded with zeros to n equal
 * *shares*, one per rank. Where a share begins or ends inside a parameter, two ranks own a part of it.
 */

/** Where the gradient of a parameter lies in its bucket, in elements. */
export interface Slot {
  readonly parameter: Parameter
  readonly offset: number
  readonly length: number
}

/** Gradients that travel together. */
export interface Bucket {
  readonly slots: readonly Slot[]
  /** Number of float32 elements. */
  readonly length: number
}

export interface BucketSizes {
  /** The most bytes of float32 that several gradients may have together. */
  readonly bucketBytes: number
  /** The same for the first bucket, before which there is nothing to send. */
  readonly firstBucketBytes: number
}

const ELEMENT = 4
/** The part of a first bucket that it may be larger, if no other bucket is needed then. */
const REST = 1 / 8

/**
 * Divides parameters into buckets, in the order in which their gradients are expected. A bucket takes
 * gradients until it is full; a gradient larger than a bucket gets its own. What is left for a second
 * bucket joins the first one if it is little.
 */
export function planBuckets(
  parameters: readonly Parameter[],
  { bucketBytes, firstBucketBytes }: BucketSizes,
): Bucket[] {
  const buckets: Bucket[] = []
  let list: Parameter[] = []
  let length = 0
  const close = (): void => {
    if (list.length > 0) buckets.push(bucketOf(list))
    list = []
    length = 0
  }
  for (const parameter of parameters) {
    const size = sizeOf(parameter.shape)
    const limit = buckets.length === 0 ? firstBucketBytes : bucketBytes
    if (length > 0 && (length + size) * ELEMENT > limit) close()
    list.push(parameter)
    length += size
  }
  // Of a small model, the rest is not worth an exchange of its own.
  const isRest = buckets.length === 1 && ELEMENT * length <= firstBucketBytes * REST
  if (isRest) list.unshift(...buckets.pop()!.slots.map(({ parameter }) => parameter))
  close()
  return buckets
}

/** One bucket with all of these parameters, in their order. */
export function bucketOf(parameters: readonly Parameter[]): Bucket {
  let length = 0
  const slots = parameters.map((parameter) => {
    const slot = { parameter, offset: length, length: sizeOf(parameter.shape) }
    length += slot.length
    return slot
  })
  return { slots, length }
}

/** The label of a bucket's collectives, with which their errors begin. */
export function labelOf({ slots }: Bucket, index: number): string {
  const more = slots.length > 1 ? ` to ${slots.at(-1)!.parameter.name}` : ''
  return `gradients, bucket ${index}: ${slots[0]!.parameter.name}${more}`
}

/** A bucket that is divided among ranks. */
export interface SharedBucket extends Bucket {
  /** Number of elements of each rank's share. */
  readonly share: number
  /** Number of elements of all shares: `length` and the padding. */
  readonly padded: number
}

/** The values [from, to) of a parameter, in row-major order, that a rank owns. */
export interface OwnedRange {
  readonly parameter: Parameter
  readonly from: number
  readonly to: number
  /** Where they begin in the rank's share of the bucket. */
  readonly at: number
}

/** Pads a bucket so that it can be divided among `ranks`. */
export function padBucket(bucket: Bucket, ranks: number): SharedBucket {
  const share = Math.ceil(bucket.length / ranks)
  return { ...bucket, share, padded: share * ranks }
}

/** What a rank owns of the parameters of a bucket: at most one range of each. */
export function ownedRanges({ slots, share }: SharedBucket, rank: number): OwnedRange[] {
  const begin = rank * share
  return slots.flatMap(({ parameter, offset, length }) => {
    const from = Math.max(begin - offset, 0)
    const to = Math.min(begin + share - offset, length)
    return from < to ? [{ parameter, from, to, at: offset + from - begin }] : []
  })
}
