/** Reads `0,2-3` as the set {0, 2, 3}; undefined when it is no such list. */
export function parseRankList(text: string): Set<number> | undefined {
  const ranks = new Set<number>()
  for (const part of text.split(',')) {
    const match = /^\s*(\d{1,6})(?:-(\d{1,6}))?\s*$/.exec(part)
    if (match === null) return undefined
    const first = Number(match[1])
    const last = Number(match[2] ?? match[1])
    if (last < first) return undefined
    for (let rank = first; rank <= last; rank++) ranks.add(rank)
  }
  return ranks
}

/** Writes ranks the short way: `0-2, 5`. */
export function formatRankList(ranks: Iterable<number>): string {
  const sorted = [...ranks].sort((a, b) => a - b)
  const ranges: [number, number][] = []
  for (const rank of sorted) {
    const last = ranges.at(-1)
    if (last?.[1] === rank - 1) last[1] = rank
    else ranges.push([rank, rank])
  }
  return ranges.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`)).join(', ')
}
