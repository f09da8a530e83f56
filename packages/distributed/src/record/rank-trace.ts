import { rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { PerformanceObserver, type PerformanceEntry } from 'node:perf_hooks'
import {
  count,
  createLogger,
  makeOwnFolder,
  monotonicNow,
  readVariable,
  written,
} from '@tsrun/core'
import { openSpanFile, spanFileName, type SpanFile, type SpanFileOwner } from './span-file.ts'
import {
  sendSpansTo,
  setCurrentTrace,
  SpanRecorder,
  spanKinds,
  type CurrentTrace,
} from './spans.ts'

/** The range of steps that a trace keeps. Steps are numbered from 1. */
export interface StepRange {
  readonly first: number
  readonly last: number
}

/** Describes the texts that `parseStepRange` accepts. */
export const STEP_RANGE = 'steps from 1, as in 10:20, 10: or 15'

/** Parses `10:20` (inclusive), `10:`, `:20` or `15`; returns undefined for anything else. */
export function parseStepRange(text: string): StepRange | undefined {
  const match = /^(\d{0,15})(:?)(\d{0,15})$/.exec(text.trim())
  if (match === null || text.trim() === '') return undefined
  const [, from, colon, to] = match
  const first = from === '' ? 1 : Number(from)
  const last = colon === '' ? first : to === '' ? Infinity : Number(to)
  return first >= 1 && last >= first ? { first, last } : undefined
}

/** Milliseconds between two flushes of the file. */
const PERIOD = 250

/** The first span of one of these kinds starts the first step. */
const FIRST = new Set((['input', 'batch', 'F'] as const).map((kind) => spanKinds.indexOf(kind)))

interface CollectorEntry extends PerformanceEntry {
  readonly detail?: { readonly kind?: number }
}

/** Names of the kinds of garbage collection, by the `kind` in a performance entry's detail. */
const collections = new Map([
  [1, 'minor'],
  [4, 'major'],
  [8, 'incremental'],
  [16, 'weak callbacks'],
])

type Owner = Pick<SpanFileOwner, 'runId' | 'restartCount' | 'rank' | 'worldSize' | 'node'>

interface Extent {
  readonly steps: StepRange
  /** Size in bytes at which a new file replaces the current one. */
  readonly bytes: number
}

/** The span files of this process in the trace of the job. */
export interface RankTrace extends CurrentTrace {
  readonly rank: number
  close(): void
}

/**
 * Writes the spans of this process to a file of the job's trace.
 *
 * @throws the error of the file system if the file cannot be made
 */
export function openRankTrace(directory: string, extent: Extent, owner: Owner): RankTrace {
  const { rank, restartCount } = owner
  const { steps, bytes } = extent
  const { pid } = process
  const recorder = new SpanRecorder({ rank })
  const isWanted = (step: number): boolean => step >= steps.first && step <= steps.last
  /**
   * Number of the current file. A new file replaces the previous one when the size limit is
   * reached.
   */
  let part = 0
  /** Size in bytes at which a new file replaces this one. */
  let limit = bytes
  let isKept = isWanted(1)
  let begun: number | undefined
  let reported: number | undefined

  const open = (): { file: SpanFile; path: string } => {
    const path = join(directory, spanFileName({ restartCount, rank, pid, part }))
    const now = { monotonic: monotonicNow(), time: Date.now() }
    const file = openSpanFile(path, { ...owner, host: hostname(), pid, ...now }, ({ message }) => {
      createLogger('distributed').warn({ path, reason: message }, 'the trace ends here')
    })
    return { file, path }
  }
  makeOwnFolder(directory)
  let current = open()

  const write = (): void => {
    const old = current
    old.file.flush()
    if (old.file.written < limit) return
    part += 1
    try {
      current = open()
    } catch {
      // The disk may be full. Keep the current file, and do not retry at every span.
      part -= 1
      limit += bytes
      return
    }
    limit = bytes
    old.file.close()
    rmSync(old.path, { force: true })
  }
  const timer = setInterval(write, PERIOD).unref()
  const onExit = (): void => {
    current.file.flush()
  }
  process.on('exit', onExit)
  const collector = observeCollections(recorder)

  const trace: RankTrace = {
    rank,
    recorder,
    endStep: (step, loss) => {
      if (step === reported) return
      const now = monotonicNow()
      // A program that resumes from a checkpoint starts at a later step than assumed. If the spans of
      // a step were not kept from its start, do not keep the step.
      isKept &&= isWanted(step)
      recorder.record('step', begun ?? now, now, { step, loss })
      reported = step
      begun = now
      isKept = isWanted(step + 1)
    },
    close: () => {
      sendSpansTo(undefined)
      setCurrentTrace(undefined)
      clearInterval(timer)
      process.off('exit', onExit)
      collector.disconnect()
      current.file.flush()
      current.file.close()
    },
  }
  sendSpansTo({
    add: (kind, start, end, name, facts, at) => {
      if (begun === undefined && FIRST.has(kind)) begun = start
      if (!isKept) return
      current.file.add(kind, start, end, name, facts, at)
      if (current.file.written >= limit) write()
    },
  })
  setCurrentTrace(trace)
  return trace
}

function observeCollections(recorder: SpanRecorder): PerformanceObserver {
  const opened = monotonicNow()
  const offset = offsetOfPerformance()
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries() as CollectorEntry[]) {
      const { startTime, duration, detail } = entry
      const start = startTime + offset
      const name = collections.get(detail?.kind ?? 0)
      if (start < opened) continue
      recorder.record('gc', start, start + duration, { name })
    }
  })
  observer.observe({ entryTypes: ['gc'] })
  return observer
}

/** Returns the offset from `performance.now()` to `monotonicNow()`. */
function offsetOfPerformance(): number {
  // Warm up, because the first call is slow.
  performance.now()
  return monotonicNow() - performance.now()
}

const stepsRule = written(STEP_RANGE, parseStepRange).default({ first: 1, last: Infinity })
const bytesRule = count({ from: 1 })
  .refine(() => true, 'a number of bytes')
  .default(Infinity)

let current: RankTrace | undefined

/**
 * Starts the trace of this rank if the launcher asks for a trace (TSRUN_TRACE_DIR). A process that
 * joins the job again appends to its file, unless its rank has changed. If the file cannot be made,
 * the job runs without a trace.
 *
 * @throws ERR_TSR_ENVIRONMENT
 */
export function beginTrace(env: NodeJS.ProcessEnv, owner: Owner): RankTrace | undefined {
  const directory = env['TSRUN_TRACE_DIR'] ?? ''
  if (directory === '' || current?.rank === owner.rank) return current
  const extent = {
    steps: readVariable('TSRUN_TRACE_RANGE', stepsRule, env),
    bytes: readVariable('TSRUN_TRACE_BYTES', bytesRule, env),
  }
  current?.close()
  current = undefined
  try {
    current = openRankTrace(directory, extent, owner)
  } catch (error) {
    const facts = { directory, reason: (error as Error).message }
    createLogger('distributed').warn(facts, 'the trace of this rank could not be written')
  }
  return current
}
