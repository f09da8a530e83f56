import { tsrError } from '@tsrun/core'
import { checkGroup } from '../requirements.ts'

/** The place of a rank in its group. */
export interface Place {
  readonly rank: number
  readonly size: number
}

/**
 * Returns the positions of a sequence that a rank has. The sequence is divided into 2 size equal
 * sections, and the rank has the sections rank and 2 size - 1 - rank. As a token sees only earlier
 * tokens, late sections are more work than early ones; such pairs balance the work of the ranks.
 *
 * A group of one rank has all positions.
 *
 * @param length - the length of the whole sequence
 * @throws ERR_TSR_ARGUMENT when several ranks share the sequence and its length is not a multiple of 2
 *   size, and without a group
 *
 * @example zigzagPositions(8, { rank: 0, size: 2 }) // [0, 1, 6, 7]
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
          : `a multiple of ${grain}, two sections for each of the ${size} ranks that share it`,
    })
  }
  if (size === 1) return Int32Array.from({ length }, (_, position) => position)
  const section = length / (2 * size)
  const late = (2 * size - 1 - rank) * section
  return Int32Array.from({ length: 2 * section }, (_, i) =>
    i < section ? rank * section + i : late + i - section,
  )
}
