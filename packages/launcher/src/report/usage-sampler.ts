import { readFileSync } from 'node:fs'
import type { ResourceUsage } from '../rank/control-message.ts'
import type { RankProcess } from '../spawn/rank-process.ts'

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
