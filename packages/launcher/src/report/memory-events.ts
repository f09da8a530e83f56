import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** What the kernel says about memory, as far as it can be read here. */
export interface MemoryEvents {
  /** Out-of-memory kills since the job started; NaN when unknown. */
  readonly kills: number
  /** Bytes that could be had now without swapping. */
  readonly available: number | undefined
  /** Bytes that this process' cgroup may use. */
  readonly limit: number | undefined
}

/** Starts to watch: the returned function says what has happened since. */
export function watchMemoryEvents(): () => MemoryEvents {
  const before = countKills()
  return () => ({
    kills: countKills() - before,
    available: readAvailable(),
    limit: readLimit(),
  })
}

/** Host-wide, of which the kills inside cgroups are part (Linux 4.13). */
function countKills(): number {
  return Number(/^oom_kill (\d+)$/m.exec(read('/proc/vmstat'))?.[1] ?? NaN)
}

function readAvailable(): number | undefined {
  const kibibytes = /^MemAvailable:\s+(\d+) kB$/m.exec(read('/proc/meminfo'))?.[1]
  return kibibytes === undefined ? undefined : Number(kibibytes) * 1024
}

/** The limit of cgroup v2, else of v1; they write `max`, or a huge number, for none. */
function readLimit(): number | undefined {
  const own = read('/proc/self/cgroup')
  const v2 = /^0::(.*)$/m.exec(own)?.[1] ?? '/'
  const v1 = /^\d+:memory:(.*)$/m.exec(own)?.[1] ?? '/'
  const files = [
    join('/sys/fs/cgroup', v2, 'memory.max'),
    '/sys/fs/cgroup/memory.max',
    join('/sys/fs/cgroup/memory', v1, 'memory.limit_in_bytes'),
    '/sys/fs/cgroup/memory/memory.limit_in_bytes',
  ]
  const limit = files.map((file) => parseInt(read(file), 10)).find((bytes) => bytes > 0)
  return limit === undefined || limit > 2 ** 60 ? undefined : limit
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
