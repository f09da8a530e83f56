import { readSystemFile } from '../placement/limits.ts'
import { sendSignal, statFields } from './rank-process.ts'

/** Clock ticks per second in /proc/<pid>/stat: USER_HZ, which is 100 on every Linux that Node supports. */
const TICKS = 100

/** CPU seconds of all threads of a process; undefined if it has ended, or without /proc. */
export function cpuSeconds(pid: number): number | undefined {
  const fields = statFields(pid)
  // utime and stime, which are fields 14 and 15 of the file.
  return fields && (Number(fields[11]) + Number(fields[12])) / TICKS
}

/** Resident bytes of a process; undefined if it has ended, or without /proc. */
export function residentBytes(pid: number): number | undefined {
  return bytesIn(`/proc/${pid}/status`, 'VmRSS')
}

/** Peak resident bytes of a process; undefined if it has ended, or without /proc. */
export function peakBytes(pid: number): number | undefined {
  return bytesIn(`/proc/${pid}/status`, 'VmHWM')
}

/** @returns undefined without such a line or file */
export function bytesIn(file: string, line: string): number | undefined {
  const text = readSystemFile(file) ?? ''
  const [, kibibytes] = new RegExp(`^${line}:\\s+(\\d+) kB$`, 'm').exec(text) ?? []
  return kibibytes === undefined ? undefined : 1024 * Number(kibibytes)
}

/** Whether a process with this ID exists; it may belong to another user. */
export function isAlive(pid: number): boolean {
  return sendSignal(pid, 0)
}
