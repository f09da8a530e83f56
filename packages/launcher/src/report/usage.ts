import { readFileSync } from 'node:fs'
import type { RankProcess } from '../processes/rank-process.ts'
import { formatBytes, formatSeconds, formatTable } from '@tsrun/core'
import type { ResourceUsage } from '../rank/control-message.ts'
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

/** A row for each rank. */
export function summaryText(usages: readonly RankUsage[]): string {
  const lines = formatTable([titles, ...usages.map(toRow)], 'right')
  return `${lines.join('\n')}\n`
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

/** Clock ticks of /proc/<pid>/stat per second: USER_HZ, 100 on every Linux that Node runs on. */
const TICKS = 100

/**
 * Looks at the CPU time and peak memory of every rank now and then: ranks that are killed cannot
 * tell. The returned function ends it.
 */
export function sampleUsage(ranks: readonly RankProcess[]): () => void {
  const look = (): void => {
    for (const rank of ranks) sample(rank)
  }
  // At most about 64 ranks a second, so that big jobs cost no more.
  const timer = setInterval(look, Math.max(1000, (ranks.length / 64) * 1000))
  timer.unref()
  return () => {
    clearInterval(timer)
  }
}

/** Takes a last look at a rank that is about to be stopped. */
export function sample(rank: RankProcess): void {
  if (rank.end === undefined) rank.sampledUsage = readUsage(rank.pid) ?? rank.sampledUsage
}

/** Usage of a process of this host; undefined where there is no /proc, or no such process. */
export function readUsage(pid: number): ResourceUsage | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const status = readFileSync(`/proc/${pid}/status`, 'latin1')
    // The name, in parentheses, may hold blanks; utime and stime are fields 14 and 15.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const kibibytes = /^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]
    if (kibibytes === undefined) return undefined
    const ticks = Number(fields[11]) + Number(fields[12])
    return { cpuSeconds: ticks / TICKS, peakBytes: Number(kibibytes) * 1024 }
  } catch {
    return undefined
  }
}
