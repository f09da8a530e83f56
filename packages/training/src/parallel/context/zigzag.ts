import { argumentError } from '@tsrun/core'
import { checkGroup } from '../requirements.ts'

/** The rank of a process in its group, and the size of the group. */
export interface Place {
  readonly rank: number
  readonly size: number
}

/**
 * Returns the positions of a sequence that a rank computes in context parallel training. The sequence is
 * divided into 2 x size equal sections. A rank has the sections with the indices `rank` and `2 x size - 1
 * - rank`. Under causal attention late sections are more work than early ones, so this pairing balances
 * the work.
 *
 * A group of one rank has all positions.
 *
 * @param length - the length of the whole sequence
 * @throws ERR_TSR_ARGUMENT without a group, or when the length is not a multiple of 2 x size and
 *   the group has several ranks
 * @example zigzagPositions(8, { rank: 0, size: 2 }) // [0, 1, 6, 7]
 */
export function zigzagPositions(length: number, place: Place): Int32Array {
  checkGroup(place)
  const { rank, size } = place
  const grain = size === 1 ? 1 : 2 * size
  if (!(Number.isSafeInteger(length) && length > 0 && length % grain === 0)) {
    throw argumentError(
      'the length of a sequence',
      length,
      size === 1
        ? 'a positive integer'
        : `a multiple of ${grain}, two sections for each of the ${size} ranks that share it`,
    )
  }
  if (size === 1) return Int32Array.from({ length }, (_, position) => position)
  const section = length / (2 * size)
  const late = (2 * size - 1 - rank) * section
  return Int32Array.from({ length: 2 * section }, (_, i) =>
    i < section ? rank * section + i : late + i - section,
  )
}
