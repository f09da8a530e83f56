import { cpuSeconds, peakBytes } from './process/process-use.ts'
import type { RankProcess } from './process/rank-process.ts'
import { formatBytes, formatSeconds, formatTable } from '@tsrun/core'
import type { ResourceUsage } from '../protocol/control.ts'
import type { RankOutcome } from '../protocol/nodes.ts'

/** The time and memory that one rank used. */
export type RankUsage = ReturnType<typeof rankUsage>

export function rankUsage(
  { rank, startedAt, endedAt, usage }: RankOutcome,
  place: { readonly node: number; readonly host: string },
) {
  return {
    rank,
    ...place,
    seconds: (endedAt - startedAt) / 1000,
    cpuSeconds: usage?.cpuSeconds,
    peakBytes: usage?.peakBytes,
  }
}

interface Column {
  readonly title: string
  readonly of: (usage: RankUsage) => number | undefined
  readonly show: (value: number) => string
}

const columns: readonly Column[] = [
  { title: 'time', of: ({ seconds }) => seconds, show: formatSeconds },
  { title: 'CPU time', of: ({ cpuSeconds }) => cpuSeconds, show: formatSeconds },
  {
    title: 'CPU',
    of: ({ cpuSeconds, seconds }) =>
      cpuSeconds === undefined || seconds === 0 ? undefined : cpuSeconds / seconds,
    show: (share) => `${Math.round(100 * share)} %`,
  },
  { title: 'peak memory', of: ({ peakBytes }) => peakBytes, show: formatBytes },
]

/** Maximum ranks with a row each. */
const MOST_ROWS = 16

/**
 * Formats a table with a row for each rank. For more than MOST_ROWS ranks, shows the minimum, median and
 * maximum of each column.
 */
export function summaryText(usages: readonly RankUsage[], width?: number): string {
  const rows = usages.length <= MOST_ROWS ? rowsOfRanks(usages) : summarize(usages)
  return `${formatTable(rows, 'right', width).join('\n')}\n`
}

const titles = columns.map(({ title }) => title)

function rowsOfRanks(usages: readonly RankUsage[]): string[][] {
  const areFar = usages.some(({ node }) => node !== usages[0]!.node)
  const place = (rank: string, host: string): string[] => (areFar ? [rank, host] : [rank])
  return [
    [...place('rank', 'host'), ...titles],
    ...usages.map((usage) => [
      ...place(String(usage.rank), usage.host),
      ...columns.map((column) => shown(column, column.of(usage))),
    ]),
  ]
}

function summarize(usages: readonly RankUsage[]): string[][] {
  return [
    [`${usages.length} ranks`, ...titles],
    statistic('least', usages, 0),
    statistic('median', usages, 0.5),
    statistic('most', usages, 1),
  ]
}

/** A row with a quantile of each column. */
function statistic(name: string, usages: readonly RankUsage[], quantile: number): string[] {
  const values = columns.map((column) => {
    const sorted = usages.flatMap((usage) => column.of(usage) ?? []).sort((a, b) => a - b)
    return shown(column, sorted[Math.floor(quantile * (sorted.length - 1))])
  })
  return [name, ...values]
}

function shown({ show }: Column, value: number | undefined): string {
  return value === undefined ? '–' : show(value)
}

/**
 * Samples the CPU time and peak memory of every rank periodically, because killed ranks cannot report
 * them. Returns a function that stops it.
 */
export function sampleUsage(ranks: readonly RankProcess[]): () => void {
  const look = (): void => {
    for (const rank of ranks) sample(rank)
  }
  // Sample at most about 64 ranks per second.
  const timer = setInterval(look, Math.max(1000, (ranks.length / 64) * 1000)).unref()
  return () => {
    clearInterval(timer)
  }
}

/** Measures a rank before it is stopped. */
export function sample(rank: RankProcess): void {
  if (rank.end === undefined) rank.sampledUsage = readUsage(rank.pid) ?? rank.sampledUsage
}

/** The usage of a process of this host; undefined without /proc or without such a process. */
export function readUsage(pid: number): ResourceUsage | undefined {
  const [seconds, peak] = [cpuSeconds(pid), peakBytes(pid)]
  return seconds === undefined || peak === undefined
    ? undefined
    : { cpuSeconds: seconds, peakBytes: peak }
}
