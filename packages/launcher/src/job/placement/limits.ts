import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import type { MemoryEvents } from '../../protocol/nodes.ts'

export type ReadSystemFile = (path: string) => string | undefined

/** Reads a file of /proc or /sys; undefined if the file cannot be read. */
export const readSystemFile: ReadSystemFile = (path) => {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch {
    return undefined
  }
}

/** Reads a limit from this process's cgroup (v2 or v1) and its parents. Returns texts and folders. */
function readCgroups(name: string, old: string, read: ReadSystemFile): [string, string][] {
  const own = read('/proc/self/cgroup') ?? ''
  const [controller = ''] = old.split('.')
  const v2 = /^0::(.*)$/m.exec(own)?.[1] ?? '/'
  const v1 = new RegExp(`^\\d+:(?:.*,)?${controller}(?:,.*)?:(.*)$`, 'm').exec(own)?.[1] ?? '/'
  const files = [
    ...upwards(v2).map((folder) => [folder, name] as const),
    ...upwards(v1).map((folder) => [join(controller, folder), old] as const),
  ]
  return files.flatMap(([folder, file]): [string, string][] => {
    const path = join('/sys/fs/cgroup', folder)
    const text = read(join(path, file)) ?? ''
    return parseInt(text) > 0 ? [[text, path]] : []
  })
}

/** Returns a folder and all its parents. */
function upwards(folder: string): string[] {
  return folder === '/' || folder === '.' ? ['/'] : [folder, ...upwards(dirname(folder))]
}

/** The smallest limit of the cgroups; Infinity if there is no limit. */
function smallest(name: string, old: string, read: ReadSystemFile): number {
  return Math.min(...readCgroups(name, old, read).map(([text]) => Number(text)))
}

/** The number of cores that the CPU quota of the cgroups allows; undefined without a quota. */
export function cpuQuota(read = readSystemFile): number | undefined {
  // The quota and its period are in microseconds. Version 1 has the period in a separate file.
  const cores = readCgroups('cpu.max', 'cpu.cfs_quota_us', read).map(([text, folder]) => {
    const [time, period = read(join(folder, 'cpu.cfs_period_us')) ?? 100_000] = text.split(' ')
    return Number(time) / Number(period)
  })
  return cores.length === 0 ? undefined : Math.min(...cores)
}

/** The number of cores that ranks may keep busy. */
export function usableCores(read = readSystemFile): number {
  return Math.max(1, Math.floor(Math.min(availableParallelism(), cpuQuota(read) ?? Infinity)))
}

/** The memory limit of the cgroup in bytes. */
export function memoryLimit(read = readSystemFile): number | undefined {
  const bytes = smallest('memory.max', 'memory.limit_in_bytes', read)
  // A huge number means no limit.
  return bytes < 2 ** 60 ? bytes : undefined
}

/** A soft limit of this process, by its name in /proc/self/limits; undefined if unknown. */
export function softLimit(name: string, read = readSystemFile): number | undefined {
  const found = new RegExp(`^${name} +(\\S+)`, 'm').exec(read('/proc/self/limits') ?? '')?.[1]
  return found === undefined ? undefined : found === 'unlimited' ? Infinity : Number(found)
}

/** The limits on processes and threads, and on the address space in KiB; Infinity if unlimited. */
export function processLimits(read = readSystemFile) {
  return {
    'pids.max of the cgroup': smallest('pids.max', 'pids.max', read),
    'ulimit -u': softLimit('Max processes', read) ?? Infinity,
    'ulimit -v': Math.floor((softLimit('Max address space', read) ?? Infinity) / 1024),
  }
}

/** Lists the limits that may prevent the start of a process, for error messages; '' if there are none. */
export function describeLimits(read = readSystemFile): string {
  const found = Object.entries(processLimits(read)).filter(([, limit]) => Number.isFinite(limit))
  return found.length === 0 ? '' : ` (${found.map((each) => each.join(': ')).join(', ')})`
}

/** @returns a function that returns the memory events since this call */
export function watchMemoryEvents(): () => MemoryEvents {
  const before = countKills()
  return () => {
    const kills = countKills() - before
    return {
      kills: Number.isNaN(kills) ? undefined : kills,
      limit: memoryLimit(),
      limits: describeLimits(),
    }
  }
}

/**
 * Counts the out-of-memory kills in the cgroup of this process or, without cgroups, on the whole host
 * (Linux 4.13 or later); NaN if unknown.
 */
function countKills(): number {
  const own = /^0::(.*)$/m.exec(readSystemFile('/proc/self/cgroup') ?? '')?.[1]
  const counts =
    readSystemFile(`/sys/fs/cgroup${own}/memory.events`) ?? readSystemFile('/proc/vmstat')
  return Number(/^oom_kill (\d+)$/m.exec(counts ?? '')?.[1] ?? NaN)
}

/** Bytes that can be allocated now without swapping. */
export function readAvailable(): number | undefined {
  return bytesIn('/proc/meminfo', 'MemAvailable')
}

/** @returns undefined if the file or the line is missing */
export function bytesIn(file: string, line: string): number | undefined {
  const text = readSystemFile(file) ?? ''
  const [, kibibytes] = new RegExp(`^${line}:\\s+(\\d+) kB$`, 'm').exec(text) ?? []
  return kibibytes === undefined ? undefined : 1024 * Number(kibibytes)
}
