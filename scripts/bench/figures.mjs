// Figures: statistics of samples, sizes in bytes, and tables.
import { UsageError } from './command-line.mjs'

/** @type {Readonly<Record<string, number>>} */
const units = {
  b: 1,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
}

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
 * Rounds to `digits` significant digits; no benchmark has more than four of them.
 *
 * @param {number} value
 * @param {number} [digits]
 * @returns {number}
 */
export function significant(value, digits = 4) {
  return Number(value.toPrecision(digits))
}

/**
 * Bytes of a size such as `4KiB`, `1.5 MB` or `4096`.
 *
 * @param {string} text
 * @returns {number} a whole number of bytes, 1 or more
 */
export function parseSize(text) {
  const [, number, unit] = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text) ?? []
  const factor = units[unit?.toLowerCase() || 'b']
  const bytes = Number(number) * (factor ?? NaN)
  if (!Number.isSafeInteger(bytes) || bytes < 1) {
    throw new UsageError(`"${text}" is not a size; write 4KiB, 1MiB, 1.5MB or a number of bytes`)
  }
  return bytes
}

/**
 * A Markdown table with aligned columns: text to the left, numbers to the right.
 *
 * @param {readonly string[]} headings
 * @param {readonly (readonly (string | number)[])[]} rows
 * @returns {string}
 */
export function markdownTable(headings, rows) {
  const right = headings.map((_, column) => rows.some((row) => typeof row[column] === 'number'))
  const cells = [headings, ...rows].map((row) => row.map((cell) => String(cell)))
  const widths = headings.map((_, column) =>
    Math.max(3, ...cells.map((row) => row[column]?.length ?? 0)),
  )
  const lines = cells.map((row) => {
    const padded = widths.map((width, column) => {
      const cell = row[column] ?? ''
      return right[column] ? cell.padStart(width) : cell.padEnd(width)
    })
    return `| ${padded.join(' | ')} |`
  })
  const rule = widths.map((width, column) =>
    right[column] ? `${'-'.repeat(width - 1)}:` : '-'.repeat(width),
  )
  lines.splice(1, 0, `| ${rule.join(' | ')} |`)
  return lines.join('\n')
}

/**
 * A table of objects that have the same keys: the keys are the headings, and null is an empty cell.
 *
 * @param {readonly Readonly<Record<string, string | number | null>>[]} records - at least one
 * @returns {string}
 */
export function formatRecords(records) {
  const headings = Object.keys(records[0] ?? {})
  return markdownTable(
    headings,
    records.map((record) => headings.map((heading) => record[heading] ?? '')),
  )
}

/**
 * Prints rows as a table, or as one JSON object per line.
 *
 * @template {object} Row
 * @param {readonly Row[]} rows
 * @param {boolean} json
 * @param {(rows: readonly Row[]) => string} format
 */
export function printRows(rows, json, format) {
  console.log(json ? rows.map((row) => JSON.stringify(row)).join('\n') : format(rows))
}
