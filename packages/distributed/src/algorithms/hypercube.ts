/** The place of a rank in the largest hypercube that fits into its group. */
export interface HypercubePlace {
  /** Corners: the largest power of two up to the group's size. */
  readonly corners: number
  /**
   * What this rank does about the `size - corners` ranks that have no corner. The first twice as
   * many ranks pair up: the even one gives its buffer to the odd one before, and gets the result
   * after; all others take part alone.
   */
  readonly role: 'gives' | 'takes' | 'alone'
  /** Its corner; a rank that gives has none (-1). */
  readonly corner: number
  /** The rank at a corner. */
  readonly rankAt: (corner: number) => number
}

export function hypercubePlace(rank: number, size: number): HypercubePlace {
  const corners = 2 ** Math.floor(Math.log2(size))
  const extra = size - corners
  const rankAt = (corner: number): number => (corner < extra ? 2 * corner + 1 : corner + extra)
  if (rank >= 2 * extra) return { corners, role: 'alone', corner: rank - extra, rankAt }
  return rank % 2 === 0
    ? { corners, role: 'gives', corner: -1, rankAt }
    : { corners, role: 'takes', corner: rank >> 1, rankAt }
}
