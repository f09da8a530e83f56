import { tsrError } from '@tsrun/core'

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
 * @param length - of the whole sequence
 * @throws ERR_TSR_ARGUMENT when it is no multiple of 2 size
 *
 * @example
 * zigzagPositions(8, { rank: 0, size: 2 }) // [0, 1, 6, 7]
 */
export function zigzagPositions(length: number, { rank, size }: Place): Int32Array {
  if (!(Number.isSafeInteger(length) && length > 0 && length % (2 * size) === 0)) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'the length of a sequence',
      value: length,
      expected: `a multiple of ${String(2 * size)}, two chunks for each of the ${String(size)} ranks that share it`,
    })
  }
  const chunk = length / (2 * size)
  const late = (2 * size - 1 - rank) * chunk
  return Int32Array.from({ length: 2 * chunk }, (_, i) =>
    i < chunk ? rank * chunk + i : late + i - chunk,
  )
}
