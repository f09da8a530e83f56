import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'

/** Reads a file of /proc or /sys; undefined if the file cannot be read. */
export type ReadSystemFile = (path: string) => string | undefined

export const readSystemFile: ReadSystemFile = (path) => {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch {
    return undefined
  }
}

/** A limit of this process's cgroup, of version 2 or 1; undefined without one. */
function readCgroup(name: string, old: string, read: ReadSystemFile): string | undefined {
  const own = read('/proc/self/cgroup') ?? ''
  const [controller = ''] = old.split('.')
  const v2 = /^0::(.*)$/m.exec(own)?.[1] ?? '/'
  const v1 = new RegExp(`^\\d+:(?:.*,)?${controller}(?:,.*)?:(.*)$`, 'm').exec(own)?.[1] ?? '/'
  return [join(v2, name), name, join(controller, v1, old), join(controller, old)]
    .map((path) => read(join('/sys/fs/cgroup', path)))
    .find((text = '') => parseInt(text) > 0)
}

/** The cores whose CPU time the cgroup may use; undefined without a quota. */
export function cpuQuota(read = readSystemFile): number | undefined {
  // Microseconds of CPU time, and of the period, which version 1 has in another file.
  const [time, period = 100_000] = readCgroup('cpu.max', 'cpu.cfs_quota_us', read)?.split(' ') ?? []
  return time === undefined ? undefined : Number(time) / Number(period)
}

/** The cores that ranks may keep busy. */
export function usableCores(read = readSystemFile): number {
  return Math.max(1, Math.floor(Math.min(availableParallelism(), cpuQuota(read) ?? Infinity)))
}

/** The memory limit of the cgroup in bytes. */
export function memoryLimit(read = readSystemFile): number | undefined {
  const bytes = Number(readCgroup('memory.max', 'memory.limit_in_bytes', read))
  // A huge number means no limit.
  return bytes < 2 ** 60 ? bytes : undefined
}

/** A soft limit of this process, by its name in /proc/self/limits; undefined if unknown. */
export function softLimit(name: string, read = readSystemFile): number | undefined {
  const found = new RegExp(`^${name} +(\\S+)`, 'm').exec(read('/proc/self/limits') ?? '')?.[1]
  return found === undefined ? undefined : found === 'unlimited' ? Infinity : Number(found)
}

/** The limits that may keep this process from starting others, for an error; '' without any. */
export function describeLimits(read = readSystemFile): string {
  const kibibytes = Math.floor((softLimit('Max address space', read) ?? Infinity) / 1024)
  const limits = {
    'pids.max of the cgroup': Number(readCgroup('pids.max', 'pids.max', read)),
    'ulimit -u': softLimit('Max processes', read) ?? Infinity,
    'ulimit -v': kibibytes,
  }
  const found = Object.entries(limits).filter(([, limit]) => Number.isFinite(limit))
  return found.length === 0 ? '' : ` (${found.map((each) => each.join(': ')).join(', ')})`
}
