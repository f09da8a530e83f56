import { closeSync, readFileSync, statfsSync } from 'node:fs'
import { availableParallelism, cpus } from 'node:os'
import { createSharedFile, isAvailable } from '@tsrun/native'
import type { CoreFacts, SharedMemoryFacts } from '../facts.ts'
import { run } from './run.ts'

/** Has another process write into a file of ours that exists in memory only. */
export async function trySharedMemory(): Promise<SharedMemoryFacts> {
  return { problem: await sharingProblem(), ...sizeOfShm() }
}

async function sharingProblem(): Promise<string | undefined> {
  const native = isAvailable()
  if (!native.available) return `not tried: ${native.reason}`
  let fd: number | undefined
  try {
    fd = createSharedFile('tsrun-doctor', 4096)
    const path = `/proc/${process.pid}/fd/${fd}`
    const script = `require('node:fs').writeFileSync(process.argv[1], 'here', { flag: 'r+' })`
    const { failure, stderr } = await run(process.execPath, ['-e', script, path])
    if (failure !== undefined) return `another process cannot open ${path}: ${firstError(stderr)}`
    return readFileSync(path, 'latin1').startsWith('here') ? undefined : `${path} is not shared`
  } catch (error) {
    return (error as Error).message
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

function firstError(stderr: string): string {
  return /^\w*Error: .*$/m.exec(stderr)?.[0] ?? 'it failed'
}

function sizeOfShm(): Pick<SharedMemoryFacts, 'size' | 'free'> {
  try {
    const { blocks, bavail, bsize } = statfsSync('/dev/shm')
    return { size: blocks * bsize, free: bavail * bsize }
  } catch {
    return { size: undefined, free: undefined }
  }
}

export function readAutogroups(): boolean | undefined {
  const text = read('/proc/sys/kernel/sched_autogroup_enabled')
  return text === undefined ? undefined : text.trim() === '1'
}

/** The limit of this process, which Node has raised as far as it may; ranks have the same. */
export function readOpenFiles(): number | undefined {
  const soft = /^Max open files\s+(\S+)/m.exec(read('/proc/self/limits') ?? '')?.[1]
  return soft === undefined ? undefined : soft === 'unlimited' ? Infinity : Number(soft)
}

export function readCores(): CoreFacts {
  // cgroup v2: time in microseconds, and the period in which it may be used
  const [time, period] = (read('/sys/fs/cgroup/cpu.max') ?? 'max').trim().split(' ').map(Number)
  const quota = (time ?? NaN) / (period ?? NaN)
  return {
    allowed: availableParallelism(),
    all: cpus().length,
    quota: Number.isFinite(quota) ? quota : undefined,
  }
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return undefined
  }
}
