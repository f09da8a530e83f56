/**
 * A Markdown table with aligned columns; numbers to the right.
 *
 * @param {readonly string[]} headings
 * @param {readonly (readonly (string | number)[])[]} rows
 * @returns {string}
 */
export function formatTable(headings, rows) {
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
 * Objects with the same keys as a table, the keys as headings; null is left empty.
 *
 * @param {readonly Readonly<Record<string, string | number | null>>[]} records - at least one
 * @returns {string}
 */
export function formatRecords(records) {
  const headings = Object.keys(records[0] ?? {})
  return formatTable(
    headings,
    records.map((record) => headings.map((heading) => record[heading] ?? '')),
  )
}

/**
 * Prints rows as a table, or as one JSON object a line.
 *
 * @template {object} Row
 * @param {readonly Row[]} rows
 * @param {boolean} json
 * @param {(rows: readonly Row[]) => string} format
 */
export function printRows(rows, json, format) {
  console.log(json ? rows.map((row) => JSON.stringify(row)).join('\n') : format(rows))
}
