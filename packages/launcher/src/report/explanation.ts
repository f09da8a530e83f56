import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { RankOutcome } from './outcome.ts'
import { formatBytes } from '@tsrun/core'

/** What a person should know about this end beyond its code or signal; undefined if nothing. */
export function explainEnd(outcome: RankOutcome, memory: MemoryEvents): string | undefined {
  const { exitCode, signal, heapExhausted } = outcome
  if (heapExhausted) {
    return (
      'The JavaScript heap is exhausted. Give it more room, for example with ' +
      'NODE_OPTIONS=--max-old-space-size=8192 (MiB, for every rank), or keep less in memory.'
    )
  }
  if (outcome.error?.code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') {
    return 'Node only strips types; to run enums and the like through tsx: NODE_OPTIONS="--import tsx".'
  }
  if (/top-level await .*"cjs"/i.test(outcome.error?.message ?? '')) {
    return 'The script is CommonJS here: "type": "module" in the package.json beside it, or the ending .mts, makes it a module.'
  }
  if (signal === 'SIGKILL') return explainKill(outcome, memory)
  if (signal !== null) return signals[signal]
  return exitCode === null ? undefined : exitCodes[exitCode]
}

const signals: Partial<Record<NodeJS.Signals, string>> = {
  SIGSEGV: 'Segmentation fault: native code (an addon, or a library called through it) crashed.',
  SIGBUS: 'Bus error: often a mapped file that shrank, or /dev/shm is full (df /dev/shm).',
  SIGILL: 'Illegal instruction: a native library was built for another kind of CPU.',
  SIGFPE: 'Arithmetic fault in native code.',
  SIGABRT: 'Native code gave up (abort); its last lines on stderr say why.',
  SIGTERM: 'Somebody other than tsrun asked it to stop.',
  SIGXCPU: 'The CPU time limit (ulimit -t) is used up.',
}

const exitCodes: Readonly<Record<number, string>> = {
  9: 'Node did not accept its options; look at NODE_OPTIONS.',
  13: 'Node’s code for a top-level await that never settled: nothing was left that could settle it.',
}

function explainKill({ usage }: RankOutcome, { kills, available, limit }: MemoryEvents): string {
  const peak =
    usage === undefined ? '' : ` The rank was last seen to use ${formatBytes(usage.peakBytes)}.`
  const room =
    limit === undefined ? '' : ` The memory limit of this job’s cgroup is ${formatBytes(limit)}.`
  if (kills > 0) {
    return `The kernel’s out-of-memory killer was at work while the job ran.${peak}${room}`
  }
  const free =
    available === undefined ? '' : ` ${formatBytes(available)} of memory are available now.`
  const who =
    kills === 0
      ? 'Somebody sent it SIGKILL (kill -9, a scheduler); the kernel counted no out-of-memory kill.'
      : 'Somebody sent it SIGKILL: kill -9, a scheduler, or the kernel’s out-of-memory killer.'
  return `${who}${peak}${room}${free}`
}

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
