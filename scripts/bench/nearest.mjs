/**
 * The candidate that differs least from `word`, or undefined when none is near.
 *
 * @param {string} word
 * @param {readonly string[]} candidates
 * @returns {string | undefined}
 */
export function nearest(word, candidates) {
  const limit = Math.max(2, Math.floor(word.length / 3))
  return candidates
    .map((candidate) => ({ candidate, edits: edits(word.toLowerCase(), candidate.toLowerCase()) }))
    .filter((entry) => entry.edits <= limit)
    .sort((a, b) => a.edits - b.edits)[0]?.candidate
}

/**
 * Insertions, deletions and substitutions that turn `from` into `to` (Levenshtein, 1966).
 *
 * @param {string} from
 * @param {string} to
 * @returns {number}
 */
function edits(from, to) {
  let row = Array.from({ length: to.length + 1 }, (_, i) => i)
  for (const [i, letter] of [...from].entries()) {
    const next = [i + 1]
    for (const [j, other] of [...to].entries()) {
      const substituted = (row[j] ?? 0) + (letter === other ? 0 : 1)
      next.push(Math.min(substituted, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1))
    }
    row = next
  }
  return row[to.length] ?? 0
}
