import { readFileSync } from 'node:fs'
import { statFields } from '../processes/rank-process.ts'

/** The clock ticks of /proc/<pid>/stat per second. */
const TICKS = 100

/** The CPU time of a process so far; undefined when it has ended, or without /proc. */
export function cpuSeconds(pid: number): number | undefined {
  const fields = statFields(pid)
  return fields === undefined ? undefined : (Number(fields[11]) + Number(fields[12])) / TICKS
}

/** The memory of a process. */
export function residentBytes(pid: number): number | undefined {
  try {
    const [, kib] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1')) ?? []
    return kib === undefined ? undefined : 1024 * Number(kib)
  } catch {
    return undefined
  }
}
