import { distance } from 'fastest-levenshtein'

/** The number of mistakes between two words. Two swapped letters are one. */
function edits(one: string, other: string) {
  const letters = (word: string) => Array.from(word).sort().join('')
  const count = distance(one, other)
  return count === 2 && letters(one) === letters(other) ? 1 : count
}

/**
 * Returns the candidate that the caller probably meant by `word`: the shortest candidate that
 * starts with `word`, otherwise the one with the fewest edits. Returns undefined if no candidate is
 * close.
 */
export function nearestName(word: string, candidates: readonly string[]): string | undefined {
  const wanted = word.toLowerCase()
  const prefixed = candidates.filter((candidate) => candidate.toLowerCase().startsWith(wanted))
  if (wanted !== '' && prefixed.length > 0) {
    return prefixed.reduce((a, b) => (b.length < a.length ? b : a))
  }
  const limit = Math.max(1, Math.floor(word.length / 2))
  return candidates
    .map((candidate) => ({ candidate, count: edits(wanted, candidate.toLowerCase()) }))
    .filter(({ count }) => count <= limit)
    .sort((a, b) => a.count - b.count)[0]?.candidate
}
