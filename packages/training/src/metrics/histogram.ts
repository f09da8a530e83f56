/** The distribution of the finite values of an array. */
export interface Histogram {
  readonly count: number
  readonly min: number
  readonly max: number
  readonly sum: number
  readonly sumOfSquares: number
  /** The upper end of each bucket, ascending; the last one is `max`. */
  readonly limits: readonly number[]
  /** The number of values in each bucket. */
  readonly counts: readonly number[]
}

const BUCKETS = 30

/** Sorts values into buckets of equal width from the least to the largest; skips NaN and infinities. */
export function histogramOf(values: ArrayLike<number>): Histogram {
  const finite = Float64Array.from(values).filter((value) => Number.isFinite(value))
  const count = finite.length
  let [min, max, sum, sumOfSquares] = [Infinity, -Infinity, 0, 0]
  for (const value of finite) {
    min = Math.min(min, value)
    max = Math.max(max, value)
    sum += value
    sumOfSquares += value * value
  }
  if (count === 0) return { count, min: 0, max: 0, sum, sumOfSquares, limits: [], counts: [] }
  const buckets = min === max ? 1 : BUCKETS
  const width = (max - min) / buckets
  const counts = Array<number>(buckets).fill(0)
  for (const value of finite) {
    const at = buckets === 1 ? 0 : Math.floor((value - min) / width)
    counts[Math.min(at, buckets - 1)]!++
  }
  const limits = counts.map((_, i) => (i === buckets - 1 ? max : min + (i + 1) * width))
  return { count, min, max, sum, sumOfSquares, limits, counts }
}
