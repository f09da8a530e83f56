import { formatRanks, formatSeconds, formatBytes } from '@tsrun/core'
import { describeFinding, isAbsentIn, type FlightFinding } from './flight-findings.ts'
import { findSource } from '../../logs/find-trace.ts'
import { prettyLine } from '../../logs/pretty-line.ts'
import { failedAt, ownEnd, succeeded, wasStopped } from './outcome.ts'
import type { ErrorReport } from '../../protocol/control.ts'
import type { Failure, HostFacts, MemoryEvents, RankOutcome } from '../../protocol/nodes.ts'
import type { RootCause } from './root-cause.ts'

interface JobFacts {
  /** The findings from the flight records of all ranks. */
  readonly findings?: readonly FlightFinding[]
  readonly worldSize?: number
  /** Ranks whose end is unknown because their host is gone. */
  readonly missing?: readonly number[]
}

/** @param outcomes - the outcomes of all ranks whose end is known */
export function describeFailure(
  cause: RootCause,
  outcomes: readonly RankOutcome[],
  { host, memory, logs, records, isDetailed = false }: HostFacts,
  { findings = [], worldSize = outcomes.length, missing = [] }: JobFacts = {},
): Omit<Failure, 'jobExitCode'> {
  const { culprit, witness, absence } = cause
  const { ended, explanation } = describeCause(cause, memory)
  const shown = witness ?? culprit
  const { frame, rest } = readCrashDump(shown)
  const { exitedAt } = shown
  const call = exitedAt && `process.exit(${shown.exitCode ?? ''}) called\n${exitedAt}`
  const error = textOf(shown, isDetailed, logs) ?? call
  return {
    rank: culprit.rank,
    worldSize,
    pid: culprit.pid,
    host,
    ended,
    exitCode: culprit.exitCode,
    signal: culprit.signal,
    seconds: secondsUntilFailure(culprit),
    explanation,
    last: absence?.last,
    error: error === undefined ? undefined : [...frame, error].join('\n'),
    what: shown.error && `${shown.error.name}: ${shown.error.message}`,
    code: shown.error?.code,
    stderr: rest,
    others: [
      ...describeOthers(outcomes, culprit, shown),
      ...(missing.length === 0
        ? []
        : [`${formatRanks(missing)}: unknown, because the host is gone`]),
    ],
    findings: findings
      // Skip findings that repeat `ended`, which already says that ranks waited for this rank.
      .filter((finding) => absence === undefined || !isAbsentIn(finding, culprit.rank))
      .map(describeFinding),
    logs,
    records,
  }
}

function describeCause(
  { culprit, witness, absence, presumed }: RootCause,
  memory: MemoryEvents,
): Pick<Failure, 'ended' | 'explanation'> {
  if (witness === undefined) {
    const explanation = presumed
      ? 'This error follows from the end of another rank or a wait for it, but no rank of this job failed before it. Compare what the ranks wait for: they may wait for each other.'
      : explainEnd(culprit, memory)
    return { ended: describeEnd(culprit), explanation }
  }
  const shown = `The error below is that of rank ${witness.rank}`
  if (absence !== undefined) return { ended: absence.what, explanation: `${shown}, which waited.` }
  if (presumed) {
    return {
      ended: `lost its connection to rank ${witness.rank}`,
      explanation: `No rank of this job failed before rank ${witness.rank} lost rank ${culprit.rank}: look at the network between them. ${shown}.`,
    }
  }
  return {
    ended: `left the job early${culprit.exitCode === 0 ? ', with exit code 0' : ''}`,
    explanation: `Rank ${culprit.rank} finished while rank ${witness.rank} still needed it: look for uneven batches and early returns. ${shown}.`,
  }
}

/** `exited with code 3`, `was killed by SIGSEGV`, `died of an uncaught TypeError (exit code 1)`. */
function describeEnd(outcome: RankOutcome): string {
  const { error, heapExhausted, exitedAt } = outcome
  const { exitCode, signal } = ownEnd(outcome)
  if (heapExhausted)
    return `ran out of JavaScript heap (${signal ?? `exit code ${exitCode ?? '?'}`})`
  if (signal !== null) return `was killed by ${signal}`
  const code = String(exitCode)
  if (error !== undefined) return `died of an uncaught error (exit code ${code})`
  return exitedAt === undefined ? `exited with code ${code}` : `called process.exit(${code})`
}

/** Ranks that ended in the same way share a line, so that the cause stays visible among many ranks. */
export function describeOthers(
  outcomes: readonly RankOutcome[],
  culprit?: RankOutcome,
  shown = culprit,
): string[] {
  const alike = new Map<string, RankOutcome[]>()
  for (const outcome of outcomes.toSorted((a, b) => failedAt(a) - failedAt(b))) {
    if (outcome === culprit) continue
    const what = describeOther(outcome, shown)
    alike.set(what, [...(alike.get(what) ?? []), outcome])
  }
  return [...alike].map(([what, ranks]) => {
    const names = formatRanks(ranks.map(({ rank }) => rank))
    const after = formatSeconds(secondsUntilFailure(ranks[0]!))
    return `${names}: ${what}, after ${after}`
  })
}

function describeOther(outcome: RankOutcome, shown: RankOutcome | undefined): string {
  const { error } = outcome
  if (succeeded(outcome)) return 'had finished'
  if (wasStopped(outcome)) {
    return outcome.stopSignal === 'SIGKILL' ? 'stopped by tsrun, with SIGKILL' : 'stopped by tsrun'
  }
  if (error === undefined) return describeEnd(outcome)
  if (outcome === shown) return 'the error above'
  if (isSameError(error, shown?.error)) return 'the same error'
  if (error.wait !== undefined) {
    const { operation, label, peers } = error.wait
    const name = label === undefined ? operation : `${operation} (${label})`
    return `timed out in ${name}, waiting for ${formatRanks(peers)}`
  }
  if (error.code !== undefined && (error.distance > 0 || error.peers.length > 0)) {
    // In a chain of failures, each rank names a different peer. Omit the peers, so that all share a line.
    const isNamed = error.peers.length > 0 && error.code !== 'ERR_TSR_PEER_FAILED'
    const whose = isNamed ? formatRanks(error.peers) : 'another rank'
    return `failed because of ${whose} (${error.code})`
  }
  if (isSameError(error, shown?.error, withoutNumbers)) return 'the same error with other numbers'
  return firstLine(`${error.name}: ${error.message}`)
}

/**
 * Compares the errors without the frames of libraries.
 *
 * @param form - normalizes a text before the comparison
 */
function isSameError(
  one: ErrorReport,
  other: ErrorReport | undefined,
  form = (text: string) => text,
): boolean {
  return other !== undefined && form((one.short ?? one).text) === form((other.short ?? other).text)
}

/** Removes the numbers from an error message, because they often include the rank. */
function withoutNumbers(text: string): string {
  return text.replaceAll(/^(?!\s+at ).*$/gm, (line) => line.replaceAll(/\d+(\.\d+)?/g, '#'))
}

function textOf(
  { error, rank }: RankOutcome,
  isDetailed: boolean,
  logs: string | undefined,
): string | undefined {
  if (error?.short === undefined || isDetailed) return error?.text
  const { text, hidden } = error.short
  const frames = hidden === 1 ? '1 frame' : `${hidden} frames`
  const where =
    logs === undefined
      ? 'TSRUN_DEBUG=detail shows them'
      : `the whole stack is in ${logs}/${rank}/stderr.log`
  return `${text}\n    (${frames} of libraries hidden; ${where})`
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? ''
}

function secondsUntilFailure(outcome: RankOutcome): number {
  return Math.max(0, failedAt(outcome) - outcome.startedAt) / 1000
}

const SHOWN_LINES = 20

/**
 * Separates Node's crash message from the other lines on stderr, so that the report prints nothing
 * twice. Syntax errors need `frame`, because their stack does not name the file.
 *
 * @returns `frame`: the location of the error (file and line, source, and a marker), empty if Node printed
 *   none; `rest`: the last lines on stderr without the crash message
 */
function readCrashDump({ error, stderrTail, heapExhausted }: RankOutcome) {
  if (heapExhausted) return { frame: [], rest: last(beforeHeapDump(stderrTail)) }
  const text = error?.text ?? ''
  const top = firstLine(text)
  const start = top === '' ? -1 : stderrTail.indexOf(top)
  if (start < 0) return { frame: [], rest: last(stderrTail) }
  const frameStart = findSource(stderrTail, start, 8)
  const frame = stderrTail.slice(frameStart, start)
  const version = stderrTail.findIndex((line, index) => index > start && /^Node\.js v\d/.test(line))
  const end = version < 0 ? start + text.split('\n').length : version + 1
  const rest = [...stderrTail.slice(0, frameStart), ...stderrTail.slice(end)]
  // Omit a location inside Node, because it does not show the line of the script.
  return { frame: frame[0]?.startsWith('node:') === true ? [] : frame, rest: last(rest) }
}

function beforeHeapDump(lines: readonly string[]): readonly string[] {
  const start = lines.findIndex((line) => /^<--- Last few GCs --->|^FATAL ERROR: /.test(line))
  return start < 0 ? [] : lines.slice(0, start)
}

function last(lines: readonly string[]): string[] {
  const kept = [...lines]
  while (kept.at(-1) === '') kept.pop()
  return kept.slice(-SHOWN_LINES).flatMap((line) => (prettyLine(line) ?? line).split('\n'))
}

/** Explains the end of a rank beyond its exit code or signal; undefined if there is no explanation. */
function explainEnd(outcome: RankOutcome, memory: MemoryEvents): string | undefined {
  const { heapExhausted } = outcome
  const { exitCode, signal } = ownEnd(outcome)
  if (heapExhausted) {
    return (
      'The JavaScript heap is exhausted. Give it more room, for example with ' +
      'NODE_OPTIONS=--max-old-space-size=8192 (MiB, for every rank), or keep less in memory.'
    )
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
/** The messages that Node or a library prints before it ends the process. */
const NO_THREAD =
  /thread_create.*(Resource temporarily unavailable|==|failed)|== \(uv_thread_create/
/** OpenBLAS ends a process with SIGINT. A shell reports SIGABRT as exit code 134. */
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

function explainKill({ usage }: RankOutcome, { kills, limit }: MemoryEvents): string {
  const peak =
    usage === undefined
      ? ''
      : ` The rank was using ${formatBytes(usage.peakBytes)} when it was last measured.`
  const room =
    limit === undefined ? '' : ` The memory limit of this job’s cgroup is ${formatBytes(limit)}.`
  if (kills !== undefined && kills > 0) {
    return `The kernel’s out-of-memory killer was active while the job ran.${peak}${room}`
  }
  const who =
    kills === 0
      ? 'Another process sent SIGKILL (kill -9, a scheduler); the kernel counted no out-of-memory kill.'
      : 'SIGKILL came from kill -9, a scheduler, or the kernel’s out-of-memory killer.'
  return `${who}${peak}${room}`
}
