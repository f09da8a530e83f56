/**
 * Cuts `costs` into `parts` runs of at least one: of all ways in which the largest sum is smallest,
 * one whose sums are most even (least sum of squares), the longer runs first.
 *
 * The linear partition problem by dynamic programming (Skiena, The Algorithm Design Manual, 10.7),
 * twice: first the smallest largest sum, then the most even runs under it. parts x costs^2 steps.
 *
 * @returns the lengths of the runs
 */
export function leastLargest(costs: readonly number[], parts: number): number[] {
  const before = [0]
  for (const cost of costs) before.push(before.at(-1)! + cost)
  const sum = (from: number, to: number): number => before[to]! - before[from]!
  const largest = partition(costs.length, parts, (from, to, rest) => Math.max(sum(from, to), rest))
  const limit = largest.value * (1 + ROUNDING)
  return partition(costs.length, parts, (from, to, rest) =>
    sum(from, to) > limit ? Infinity : sum(from, to) ** 2 + rest,
  ).lengths
}

/** Sums that differ by less are the same. */
const ROUNDING = 1e-9

/**
 * The cheapest way to cut `count` things into `parts` runs.
 *
 * @param price - of a first run [from, to), when those behind it cost `rest`
 */
function partition(
  count: number,
  parts: number,
  price: (from: number, to: number, rest: number) => number,
): { value: number; lengths: number[] } {
  // of what begins at `from` and has as many runs as there were rounds: nothing costs nothing
  let best = Array.from({ length: count + 1 }, (_, from) => (from === count ? 0 : Infinity))
  const ends: number[][] = []
  for (let runs = 1; runs <= parts; runs++) {
    const next = Array<number>(count + 1).fill(Infinity)
    const end = Array<number>(count + 1).fill(count)
    for (let from = 0; from <= count - runs; from++) {
      for (let to = count - runs + 1; to > from; to--) {
        const value = price(from, to, best[to]!)
        if (value < next[from]! * (1 - ROUNDING)) [next[from], end[from]] = [value, to]
      }
    }
    best = next
    ends.unshift(end)
  }
  const lengths: number[] = []
  let from = 0
  for (const end of ends) {
    lengths.push(end[from]! - from)
    from = end[from]!
  }
  return { value: best[0]!, lengths }
}
