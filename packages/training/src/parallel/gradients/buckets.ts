import type { Parameter } from '../../model/parameter.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'

/*
 * The layout of gradient buckets. A *bucket* holds several gradients, one after the other, which
 * are sent together. With ZeRO, a bucket is padded with zeros and divided into equal *shares*, one
 * per rank. A parameter that crosses the border of two shares is owned by both ranks.
 */

/** The position of a parameter's gradient in its bucket, in elements. */
export interface Slot {
  readonly parameter: Parameter
  readonly offset: number
  readonly length: number
}

/** Gradients that are sent together in one message buffer. */
export interface Bucket {
  readonly slots: readonly Slot[]
  /** The number of float32 elements. */
  readonly length: number
}

const ELEMENT = 4
/** The first bucket may exceed its limit by this fraction if one bucket then holds all gradients. */
const REST = 1 / 8

/**
 * Divides parameters into buckets, in the order in which their gradients are expected. A gradient
 * that is larger than a bucket gets its own bucket. If the second bucket would be small, it is
 * merged into the first.
 *
 * @param sizes - the largest sizes in bytes of float32, of the first bucket and of others. A small first
 *   bucket starts communication early
 */
export function planBuckets(
  parameters: readonly Parameter[],
  { bucketBytes, firstBucketBytes }: Readonly<Record<'bucketBytes' | 'firstBucketBytes', number>>,
): Bucket[] {
  const buckets: Bucket[] = []
  let list: Parameter[] = []
  let length = 0
  const close = () => {
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
  // In a small model, a small second bucket is not worth a separate collective.
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

/** Returns the label of a bucket's collectives, for error messages. */
export function labelOf({ slots }: Bucket, index: number): string {
  const more = slots.length > 1 ? ` to ${slots.at(-1)!.parameter.name}` : ''
  return `gradients, bucket ${index}: ${slots[0]!.parameter.name}${more}`
}

/** A bucket that is divided into one share per rank. */
export interface SharedBucket extends Bucket {
  /** The number of elements of each rank's share. */
  readonly share: number
  /** The number of elements of all shares, including the padding. */
  readonly padded: number
}

/** Pads a bucket to a multiple of `ranks` elements, so that all shares are equal. */
export function padBucket(bucket: Bucket, ranks: number): SharedBucket {
  const share = Math.ceil(bucket.length / ranks)
  return { ...bucket, share, padded: share * ranks }
}

/**
 * Returns the ranges [from, to) of a bucket's parameters that a rank owns, in row-major order: at most one
 * range per parameter. `at` is the offset of the range in the rank's share of the bucket, in elements.
 */
export function ownedRanges({ slots, share }: SharedBucket, rank: number) {
  const begin = rank * share
  return slots.flatMap(({ parameter, offset, length }) => {
    const from = Math.max(begin - offset, 0)
    const to = Math.min(begin + share - offset, length)
    return from < to ? [{ parameter, from, to, at: offset + from - begin }] : []
  })
}
