import type { MemoryEvents } from '../../protocol/nodes.ts'
import { describeLimits, memoryLimit, readSystemFile } from '../placement/limits.ts'
import { bytesIn } from '../process/process-use.ts'

/** @returns a function that returns the events since `watchMemoryEvents` was called */
export function watchMemoryEvents(): () => MemoryEvents {
  const before = countKills()
  return () => ({
    kills: countKills() - before,
    available: readAvailable(),
    limit: memoryLimit(),
    limits: describeLimits(),
  })
}

/** Counts the kills in the cgroup of this process or, without cgroups, on the whole host (Linux 4.13). */
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
