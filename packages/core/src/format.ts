import { host } from '#host'
import { visibleText } from './visible-text.ts'

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const

/** Formats bytes, as in `512 B`, `4 KiB` or `1.5 GiB`. Only numbers below ten have a decimal. */
export function formatBytes(bytes: number): string {
  let value = bytes
  let unit = 0
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024
  return `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} ${units[unit]!}`
}

/** Formats a duration, as in `3.20 s`, `4 min 10 s` or `2 h 5 min`. */
export function formatSeconds(seconds: number): string {
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 120) return `${minutes} min ${Math.floor(seconds % 60)} s`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** Formats ranks, as in `rank 3` or `ranks 0-2, 5`. */
export function formatRanks(ranks: Iterable<number>): string {
  const list = [...ranks]
  return `${list.length === 1 ? 'rank' : 'ranks'} ${formatRankList(list)}`
}

/** Formats ranks in ascending order, as in `0-2, 5` for 0, 1, 2 and 5. */
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

/** Default width of a line in characters. */
const USUAL_WIDTH = 80

/** Characters of a line of standard output: `COLUMNS`, else the width of the terminal, else 80. */
export function textWidth(
  env = host.env,
  output: { readonly columns?: number } = host.output,
): number {
  const { COLUMNS = '' } = env
  if (/^[1-9]\d{0,4}$/.test(COLUMNS)) return Number(COLUMNS)
  // A terminal of unknown size reports 0.
  return output.columns === undefined || output.columns === 0 ? USUAL_WIDTH : output.columns
}

/**
 * Formats a table with aligned columns. If the table is wider than `width`, the columns that do not
 * fit follow below an empty line, and the first column is repeated there.
 *
 * @param rows - rows of equal length, usually with the headings first
 * @param align - how cells are aligned in their column
 * @param width - characters of a line; a longer cell is not broken
 * @returns the lines
 */
export function formatTable(
  rows: readonly (readonly string[])[],
  align: 'left' | 'right' = 'left',
  width = textWidth(),
): string[] {
  const cells = rows.map((row) => row.map((cell) => visibleText(cell)))
  const widths = (cells[0] ?? []).map((_, column) =>
    Math.max(...cells.map((row) => row[column]!.length)),
  )
  const pad = (cell: string, room: number) =>
    align === 'right' ? cell.padStart(room) : cell.padEnd(room)
  return foldColumns(widths, width).flatMap((columns, block) => [
    ...(block === 0 ? [] : ['']),
    ...cells.map((row) =>
      columns
        .map((column) => pad(row[column]!, widths[column]!))
        .join(GAP)
        .trimEnd(),
    ),
  ])
}

const GAP = '  '

/** Splits the columns into blocks that fit the width. Every block begins with the first column. */
function foldColumns(widths: readonly number[], room: number): number[][] {
  if (widths.length === 0) return []
  let used = widths[0]!
  const blocks = [[0]]
  for (let column = 1; column < widths.length; column++) {
    const needed = GAP.length + widths[column]!
    if (used + needed > room && blocks.at(-1)!.length > 1) {
      used = widths[0]!
      blocks.push([0])
    }
    blocks.at(-1)!.push(column)
    used += needed
  }
  return blocks
}
