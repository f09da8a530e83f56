import type { MemoryEvents } from './memory-events.ts'
import type { RankOutcome } from './outcome.ts'
import { formatBytes } from './units.ts'

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
