import { ownEnd } from './outcome.ts'
import type { MemoryEvents, RankOutcome } from '../../protocol/nodes.ts'
import { formatBytes } from '@tsrun/core'

/** Explains the end of a rank beyond its exit code or signal; undefined if there is no explanation. */
export function explainEnd(outcome: RankOutcome, memory: MemoryEvents): string | undefined {
  const { heapExhausted } = outcome
  const { exitCode, signal } = ownEnd(outcome)
  if (heapExhausted) {
    return (
      'The JavaScript heap is exhausted. Give it more room, for example with ' +
      'NODE_OPTIONS=--max-old-space-size=8192 (MiB, for every rank), or keep less in memory.'
    )
  }
  if (outcome.error?.code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') {
    return 'Node only strips types. tsx also runs enums and namespaces: NODE_OPTIONS="--import tsx" (npm install -D tsx).'
  }
  if (MODULE_SYNTAX.test(outcome.error?.message ?? '')) {
    return 'Node reads the file as CommonJS. "type": "module" in its package.json, or the extension .mts (.mjs), makes it an ES module.'
  }
  if (signal === 'SIGKILL') return explainKill(outcome, memory)
  const { limits = '' } = memory
  const words = outcome.error?.message ?? outcome.stderrTail.join()
  if (limits.includes('ulimit -v') && NO_MEMORY.test(words)) {
    return `The address space is used up${limits}. V8 and WebAssembly reserve more of it than they use, so raise ulimit -v.`
  }
  if (lacksThreads(outcome)) {
    return `The host allows no more processes and threads${limits}. Raise that limit, or start fewer ranks.`
  }
  if (signal !== null) return signals[signal]
  return exitCode === null ? undefined : exitCodes[exitCode]
}

/** Errors of Node and tsx about ES module syntax in CommonJS, and about a required ES module. */
const MODULE_SYNTAX =
  /top-level await .*"cjs"|^Cannot use import statement outside|^Unexpected token 'export'|'import\.meta' outside|^await is only valid .* modules|^request for '.*' is not in cache/i

const NO_MEMORY = /ENOMEM|allocat|out of memory|virtual memory/i

/** The error of a process or a worker that cannot start. */
const NO_PROCESS = /^(spawn(Sync)? .*|Worker .*)?EAGAIN$/
/** What Node or a library prints before it ends the process. */
const NO_THREAD =
  /thread_create.*(Resource temporarily unavailable|==|failed)|== \(uv_thread_create/
/** SIGINT is how OpenBLAS ends a process; 134 is the exit code of a shell for SIGABRT. */
const abrupt: readonly unknown[] = ['SIGABRT', 'SIGINT', 134]

/** Whether a rank has ended because the host allows no more processes and threads. */
export function lacksThreads(outcome: RankOutcome): boolean {
  const { error, heapExhausted, stderrTail } = outcome
  if (error !== undefined) return NO_PROCESS.test(error.message)
  const { signal, exitCode } = ownEnd(outcome)
  const isAbrupt = abrupt.includes(signal ?? exitCode) && !heapExhausted
  return isAbrupt && stderrTail.some((line) => NO_THREAD.test(line))
}

const signals: Partial<Record<NodeJS.Signals, string>> = {
  SIGSEGV: 'Segmentation fault: native code (an addon, or a library called through it) crashed.',
  SIGBUS: 'Bus error: a mapped file may have shrunk, or /dev/shm may be full (df /dev/shm).',
  SIGILL: 'Illegal instruction: a native library was built for another kind of CPU.',
  SIGFPE: 'Arithmetic fault in native code.',
  SIGABRT: 'Native code called abort(); its last lines on stderr may say why.',
  SIGTERM: 'A process other than tsrun asked it to stop.',
  SIGXCPU: 'The CPU time limit (ulimit -t) is used up.',
}

const exitCodes: Readonly<Record<number, string>> = {
  9: 'Node did not accept its options: check NODE_OPTIONS.',
  13: 'Node’s exit code for a top-level await that never settled: nothing was left that could settle it.',
}

function explainKill({ usage }: RankOutcome, { kills, available, limit }: MemoryEvents): string {
  const peak =
    usage === undefined
      ? ''
      : ` The rank was using ${formatBytes(usage.peakBytes)} when it was last measured.`
  const room =
    limit === undefined ? '' : ` The memory limit of this job’s cgroup is ${formatBytes(limit)}.`
  if (kills > 0) {
    return `The kernel’s out-of-memory killer was active while the job ran.${peak}${room}`
  }
  const free =
    available === undefined ? '' : ` ${formatBytes(available)} of memory is available now.`
  const who =
    kills === 0
      ? 'Another process sent SIGKILL (kill -9, a scheduler); the kernel counted no out-of-memory kill.'
      : 'SIGKILL came from kill -9, a scheduler, or the kernel’s out-of-memory killer.'
  return `${who}${peak}${room}${free}`
}
