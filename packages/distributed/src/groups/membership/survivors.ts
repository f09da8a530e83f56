/** What a rank says when it comes to a shrink. Ranks of the world. */
export interface Vote {
  readonly rank: number
  /** Members that it has no connection to any more. */
  readonly gone: readonly number[]
}

/**
 * The largest part of the voters, nearly, that see each other all: while two have lost sight of each
 * other, the one with the most lost connections among the rest goes, of several the highest rank.
 *
 * @param members - gives the order of the result
 */
export function survivorsOf(members: readonly number[], votes: readonly Vote[]): number[] {
  const lost = new Map(votes.map(({ rank }) => [rank, new Set<number>()]))
  for (const { rank, gone } of votes) {
    for (const peer of gone) {
      if (!lost.has(peer)) continue
      lost.get(rank)?.add(peer)
      lost.get(peer)?.add(rank)
    }
  }
  for (;;) {
    const [worst] = [...lost].sort((a, b) => b[1].size - a[1].size || b[0] - a[0])
    if (worst === undefined || worst[1].size === 0) break
    lost.delete(worst[0])
    for (const peers of lost.values()) peers.delete(worst[0])
  }
  return members.filter((member) => lost.has(member))
}
