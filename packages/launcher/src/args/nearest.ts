/**
 * The candidate that `word` was probably meant to be: one that starts with it, or the one with the
 * fewest edits; undefined when nothing is close.
 */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  const prefixed = word === '' ? [] : candidates.filter((candidate) => candidate.startsWith(word))
  if (prefixed.length > 0) return prefixed.reduce((a, b) => (b.length < a.length ? b : a))
  const limit = Math.max(1, Math.floor(word.length / 2))
  return candidates
    .map((candidate) => ({ candidate, edits: editDistance(word, candidate) }))
    .filter(({ edits }) => edits <= limit)
    .sort((a, b) => a.edits - b.edits)[0]?.candidate
}

/** Insertions, deletions, replacements and swaps of neighbours (optimal string alignment). */
export function editDistance(from: string, to: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let row = 1; row <= from.length; row++) {
    const current = [row]
    for (let column = 1; column <= to.length; column++) {
      const same = from[row - 1] === to[column - 1]
      let edits = Math.min(
        last[column]! + 1,
        current[column - 1]! + 1,
        last[column - 1]! + (same ? 0 : 1),
      )
      if (from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1]) {
        edits = Math.min(edits, beforeLast[column - 2]! + 1)
      }
      current.push(edits)
    }
    beforeLast = last
    last = current
  }
  return last[to.length]!
}
