import { tsrError } from '@tsrun/core'
import { checkGroup } from '../check-group.ts'

/** A rank's place in its group. */
export interface Place {
  readonly rank: number
  readonly size: number
}

/**
 * Which positions of a sequence a rank has: of 2 size chunks those with the numbers rank and
 * 2 size - 1 - rank. A token sees those before it, so early chunks are little work and late ones much;
 * in such pairs all ranks have the same.
 *
 * One rank has them all.
 *
 * @param length - of the whole sequence
 * @throws ERR_TSR_ARGUMENT when several ranks share it and it is no multiple of 2 size, and without a
 *   group
 *
 * @example
 * zigzagPositions(8, { rank: 0, size: 2 }) // [0, 1, 6, 7]
 */
export function zigzagPositions(length: number, place: Place): Int32Array {
  checkGroup(place)
  const { rank, size } = place
  const grain = size === 1 ? 1 : 2 * size
  if (!(Number.isSafeInteger(length) && length > 0 && length % grain === 0)) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'the length of a sequence',
      value: length,
      expected:
        size === 1
          ? 'a positive integer'
          : `a multiple of ${grain}, two chunks for each of the ${size} ranks that share it`,
    })
  }
  if (size === 1) return Int32Array.from({ length }, (_, position) => position)
  const chunk = length / (2 * size)
  const late = (2 * size - 1 - rank) * chunk
  return Int32Array.from({ length: 2 * chunk }, (_, i) =>
    i < chunk ? rank * chunk + i : late + i - chunk,
  )
}
