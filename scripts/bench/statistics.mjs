/**
 * The value below which `share` of the samples lie, by nearest rank: always one of the samples.
 *
 * @param {readonly number[]} samples - at least one
 * @param {number} share - 0 to 1
 * @returns {number}
 */
export function percentile(samples, share) {
  if (samples.length === 0) throw new RangeError('percentile of no samples')
  const sorted = samples.toSorted((a, b) => a - b)
  const position = Math.ceil(share * sorted.length) - 1
  return /** @type {number} */ (sorted[Math.min(sorted.length - 1, Math.max(0, position))])
}

/**
 * The middle sample, or the mean of the middle two.
 *
 * @param {readonly number[]} samples - at least one
 * @returns {number}
 */
export function median(samples) {
  const half = samples.length / 2
  const sorted = samples.toSorted((a, b) => a - b)
  const high = sorted[Math.floor(half)]
  const low = sorted[Math.ceil(half) - 1]
  if (high === undefined || low === undefined) throw new RangeError('median of no samples')
  return (low + high) / 2
}

/**
 * Rounds to `digits` significant digits: a benchmark's figures have no more than four.
 *
 * @param {number} value
 * @param {number} [digits]
 * @returns {number}
 */
export function significant(value, digits = 4) {
  return Number(value.toPrecision(digits))
}
