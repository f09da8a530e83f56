import type { Parameter } from '../../model/parameter.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'

/*
 * Layout of gradient buckets. Gradients are sent together in a *bucket*, one after the other. If ranks
 * shard the training state, a bucket is padded with zeros to n equal *shares*, one per rank. A parameter
 * that crosses the border of two shares is owned by both ranks.
 */

/** The position of a parameter's gradient in its bucket, in elements. */
export interface Slot {
  readonly parameter: Parameter
  readonly offset: number
  readonly length: number
}

/** Gradients that are sent together. */
export interface Bucket {
  readonly slots: readonly Slot[]
  /** Number of float32 elements. */
  readonly length: number
}

export interface BucketSizes {
  /** The most bytes of float32 gradients in a bucket of several gradients. */
  readonly bucketBytes: number
  /** The same for the first bucket, before which nothing can be sent. */
  readonly firstBucketBytes: number
}

const ELEMENT = 4
/** The first bucket may be larger by this fraction if that saves a second bucket. */
const REST = 1 / 8

/**
 * Divides parameters into buckets, in the order in which their gradients are expected. A bucket takes
 * gradients until it is full; a gradient larger than a bucket gets its own. A small second bucket is
 * merged into the first.
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
  // In a small model, a small remainder is not worth a separate exchange.
  const isRest = buckets.length === 1 && ELEMENT * length <= firstBucketBytes * REST
  if (isRest) list.unshift(...buckets.pop()!.slots.map(({ parameter }) => parameter))
  close()
  return buckets
}

export function bucketOf(parameters: readonly Parameter[]): Bucket {
  let length = 0
  const slots = parameters.map((parameter) => {
    const slot = { parameter, offset: length, length: sizeOf(parameter.shape) }
    length += slot.length
    return slot
  })
  return { slots, length }
}

/** The label of a bucket's collectives, at the start of their error messages. */
export function labelOf({ slots }: Bucket, index: number): string {
  const more = slots.length > 1 ? ` to ${slots.at(-1)!.parameter.name}` : ''
  return `gradients, bucket ${index}: ${slots[0]!.parameter.name}${more}`
}

/** A bucket that is sharded among ranks. */
export interface SharedBucket extends Bucket {
  /** Number of elements of each rank's share. */
  readonly share: number
  /** Number of elements of all shares: `length` plus the padding. */
  readonly padded: number
}

/** The values [from, to) of a parameter, in row-major order, that a rank owns. */
export interface OwnedRange {
  readonly parameter: Parameter
  readonly from: number
  readonly to: number
  /** Their offset in the rank's share of the bucket, in elements. */
  readonly at: number
}

/** Pads a bucket so that it can be divided among `ranks`. */
export function padBucket(bucket: Bucket, ranks: number): SharedBucket {
  const share = Math.ceil(bucket.length / ranks)
  return { ...bucket, share, padded: share * ranks }
}

/** The ranges of a bucket's parameters that a rank owns: at most one per parameter. */
export function ownedRanges({ slots, share }: SharedBucket, rank: number): OwnedRange[] {
  const begin = rank * share
  return slots.flatMap(({ parameter, offset, length }) => {
    const from = Math.max(begin - offset, 0)
    const to = Math.min(begin + share - offset, length)
    return from < to ? [{ parameter, from, to, at: offset + from - begin }] : []
  })
}
