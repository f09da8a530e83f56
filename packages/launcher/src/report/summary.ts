import { formatBytes, formatSeconds } from './units.ts'
import type { RankOutcome } from './outcome.ts'

/** What one rank used. */
export interface RankUsage {
  readonly rank: number
  readonly seconds: number
  readonly cpuSeconds: number | undefined
  readonly peakBytes: number | undefined
}

export function rankUsage({ rank, startedAt, endedAt, usage }: RankOutcome): RankUsage {
  return {
    rank,
    seconds: (endedAt - startedAt) / 1000,
    cpuSeconds: usage?.cpuSeconds,
    peakBytes: usage?.peakBytes,
  }
}

const titles = ['rank', 'time', 'CPU time', 'CPU', 'peak memory']

/** One row a rank. */
export function summaryText(usages: readonly RankUsage[]): string {
  const rows = [titles, ...usages.map(toRow)]
  const widths = titles.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  return rows
    .map((row) => row.map((cell, i) => cell.padStart(widths[i]!)).join('  ') + '\n')
    .join('')
}

function toRow({ rank, seconds, cpuSeconds, peakBytes }: RankUsage): string[] {
  return [
    String(rank),
    formatSeconds(seconds),
    cpuSeconds === undefined ? '–' : formatSeconds(cpuSeconds),
    cpuSeconds === undefined || seconds === 0
      ? '–'
      : `${Math.round((100 * cpuSeconds) / seconds)} %`,
    peakBytes === undefined ? '–' : formatBytes(peakBytes),
  ]
}
