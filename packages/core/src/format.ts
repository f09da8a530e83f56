const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const

/** `512 B`, `4 KiB`, `1.5 GiB`: one decimal below ten, where it is not zero. */
export function formatBytes(bytes: number): string {
  let value = bytes
  let unit = 0
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024
  return `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} ${units[unit]!}`
}

/** `3.20 s`, `4 min 10 s`, `2 h 5 min`. */
export function formatSeconds(seconds: number): string {
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 120) return `${minutes} min ${Math.floor(seconds % 60)} s`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** `rank 3`, or `ranks 0-2, 5` for several. */
export function formatRanks(ranks: Iterable<number>): string {
  const list = [...ranks]
  return `${list.length === 1 ? 'rank' : 'ranks'} ${formatRankList(list)}`
}

/** `0-2, 5` for 0, 1, 2 and 5, in ascending order. */
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

/**
 * A table with columns of equal width.
 *
 * @param rows - the first one is usually that of the headings; all of the same length
 * @param align - the side of the column to which its cells move
 * @returns a line for each row
 */
export function formatTable(
  rows: readonly (readonly string[])[],
  align: 'left' | 'right' = 'left',
): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]!.length)),
  )
  const pad = (cell: string, width: number): string =>
    align === 'right' ? cell.padStart(width) : cell.padEnd(width)
  return rows.map((row) =>
    row
      .map((cell, column) => pad(cell, widths[column]!))
      .join('  ')
      .trimEnd(),
  )
}
