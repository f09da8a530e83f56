import type { Parameter } from '../../model/parameter.ts'
import type { Bucket } from '../data/buckets.ts'

/*
 * The mathematics of sharding. Parameters lie one behind the other in a *bucket*, which is padded
 * with zeros to n equal *shares*, one a rank: where a share begins or ends inside a parameter, two
 * ranks own a part of it.
 */

/** A bucket that divides by the ranks. */
export interface FlatBucket extends Bucket {
  /** Elements of each rank's share. */
  readonly share: number
  /** Elements of all shares, `length` and the padding. */
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

export function padBucket(bucket: Bucket, ranks: number): FlatBucket {
  const share = Math.ceil(bucket.length / ranks)
  return { ...bucket, share, padded: share * ranks }
}

/** What a rank owns of the parameters of a bucket: at most one range of each. */
export function ownedRanges({ slots, share }: FlatBucket, rank: number): OwnedRange[] {
  const begin = rank * share
  return slots.flatMap(({ parameter, offset, length }) => {
    const from = Math.max(begin - offset, 0)
    const to = Math.min(begin + share - offset, length)
    return from < to ? [{ parameter, from, to, at: offset + from - begin }] : []
  })
}
