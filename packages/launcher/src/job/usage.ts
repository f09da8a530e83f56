import { cpuSeconds, peakBytes } from './process/process-use.ts'
import type { RankProcess } from './process/rank-process.ts'
import { formatBytes, formatSeconds, formatTable } from '@tsrun/core'
import type { ResourceUsage } from '../protocol/control.ts'
import type { RankOutcome } from '../protocol/nodes.ts'

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

export function summaryText(usages: readonly RankUsage[]): string {
  const areFar = usages.some(({ node }) => node !== usages[0]!.node)
  const place = (rank: string, host: string): string[] => (areFar ? [rank, host] : [rank])
  const rows = usages.map(({ rank, host, seconds, cpuSeconds, peakBytes }) => [
    ...place(String(rank), host),
    formatSeconds(seconds),
    known(cpuSeconds, formatSeconds),
    known(cpuSeconds, (busy) => `${Math.round((100 * busy) / seconds)} %`),
    known(peakBytes, formatBytes),
  ])
  const titles = [...place('rank', 'host'), 'time', 'CPU time', 'CPU', 'peak memory']
  return `${formatTable([titles, ...rows], 'right').join('\n')}\n`
}

/** The text of a table cell: a dash for an unknown value. */
export function known(value: number | undefined, format: (value: number) => string): string {
  return value === undefined ? '–' : format(value)
}

/**
 * Samples the usage of every rank periodically, because killed ranks cannot report it. Returns a function
 * that stops the sampling.
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
