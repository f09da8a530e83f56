import type { Parameter } from '@tsrun/training'
import { planBuckets } from '../../../internals/training.ts'

/** Lengths of the gradients in each bucket. */
function plan(
  lengths: readonly number[],
  firstBucketBytes: number,
  bucketBytes = 4000,
): number[][] {
  const parameters = lengths.map(
    (length, i) => ({ name: `p${i}`, shape: [length] }) as unknown as Parameter,
  )
  const buckets = planBuckets(parameters, { firstBucketBytes, bucketBytes })
  for (const { slots, length } of buckets) {
    let end = 0
    for (const slot of slots) {
      expect(slot.offset).toBe(end)
      end += slot.length
    }
    expect(length).toBe(end)
  }
  return buckets.map(({ slots }) => slots.map(({ length }) => length))
}

it('buckets take gradients until they are full, and the first bucket is small', () => {
  expect(plan([10, 10, 10, 500, 600, 5], 100)).toEqual([
    [10, 10],
    [10, 500],
    [600, 5],
  ])
})

it('a gradient larger than a bucket gets its own bucket', () => {
  expect(plan([5000, 10, 5000], 100)).toEqual([[5000], [10], [5000]])
})

it('a small remainder for a second bucket joins the first', () => {
  expect(plan([50, 50, 12], 400)).toEqual([[50, 50, 12]])
  expect(plan([50, 50, 13], 400)).toEqual([[50, 50], [13]])
  expect(plan([50, 50, 1000, 12], 400)).toEqual([[50, 50], [1000], [12]])
})
