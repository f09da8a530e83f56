import { readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { tsrError } from '@tsrun/core'
import { spansFolder, type Span } from '@tsrun/distributed/record'
import { alignClocks, hostOf } from './clocks.ts'
import type { Window } from './division.ts'
import { indexSpans, SpanFileReader } from './span-file-reader.ts'

/** The span files of one run. */
export interface TracedRun {
  readonly runId: string
  readonly lastAttempt: number
  /** A file for each rank of each attempt, in the order of attempts and ranks. */
  readonly files: readonly SpanFileReader[]
  /** Files that could not be read, and folders without files of the run. */
  readonly problems: readonly string[]
}

/**
 * Finds the files of a run in folders of `--trace`: one folder for each host, or a shared one.
 *
 * @param runId - default: the newest run
 * @param problems - receives why files could not be read
 * @returns undefined if there is no such run
 */
export function findTracedRun(
  directories: readonly string[],
  runId?: string,
  problems: string[] = [],
): TracedRun | undefined {
  const files: { readonly directory: string; readonly name: string; reader: SpanFileReader }[] = []
  for (const directory of directories) {
    for (const path of spanFiles(directory, runId)) {
      const name = join(basename(dirname(path)), basename(path))
      try {
        files.push({ directory, name, reader: new SpanFileReader(path) })
      } catch (error) {
        problems.push(`${path}: ${(error as Error).message}`)
      }
    }
  }
  const [newest] = files.map(({ reader }) => reader.header).sort((a, b) => b.time - a.time)
  if (newest === undefined) return undefined
  const ofRun = files.filter(({ reader }) => reader.header.runId === newest.runId)
  for (const directory of directories) {
    if (ofRun.some((file) => file.directory === directory)) continue
    problems.push(`${directory}: it has nothing of run ${newest.runId}`)
  }
  // Count a file once if it was copied between hosts.
  const own = [...new Map(ofRun.map(({ name, reader }) => [name, reader])).values()].sort(
    ({ header: a }, { header: b }) => a.restartCount - b.restartCount || a.rank - b.rank,
  )
  const lastAttempt = own.at(-1)!.header.restartCount
  return { runId: newest.runId, lastAttempt, files: own, problems }
}

/**
 * Finds a run like `findTracedRun`, in folders that a user has named.
 *
 * @param names - the folders as the user wrote them
 * @throws ERR_TSR_USAGE if there is no such run
 */
export function findTrace(
  directories: readonly string[],
  names: readonly string[],
  runId: string | undefined,
): TracedRun {
  let found: TracedRun | undefined
  const problems: string[] = []
  try {
    found = findTracedRun(directories, runId, problems)
  } catch (cause) {
    throw tsrError('ERR_TSR_USAGE', { problem: (cause as Error).message }, { cause })
  }
  if (found !== undefined) return found
  const what = runId === undefined ? 'no trace' : `no trace of a run ${runId}`
  const hint = problems[0] ?? 'tsrun --trace DIR writes one'
  const problem = `there is ${what} in ${names.join(', ')}; ${hint}`
  throw tsrError('ERR_TSR_USAGE', { problem })
}

function spanFiles(directory: string, runId: string | undefined) {
  return folders(directory, runId).flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith('.spans'))
      .map((name) => join(folder, name)),
  )
}

function folders(directory: string, runId: string | undefined) {
  try {
    return readdirSync(join(directory, 'spans'), { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && (runId === undefined || entry.name === runId))
      .map(({ name }) => spansFolder(directory, name))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

/** A step of a rank, on the common clock. */
interface RecordedStep extends Window {
  readonly loss: number | undefined
}

/** The steps of a run's last attempt. */
export type RecordedSteps = ReturnType<typeof readSteps>

/** Finds the steps and spans of a run's last attempt, without keeping all spans in memory. */
export function readSteps({ runId, lastAttempt, files }: TracedRun) {
  const own = files.filter(({ header }) => header.restartCount === lastAttempt)
  const offsets = alignClocks(own)
  const read = [...new Set(own.map(({ header }) => header.rank))].map((rank) => {
    // A process that replaced a lost rank has written a separate file.
    const ofRank = own
      .filter(({ header }) => header.rank === rank)
      .sort((a, b) => a.header.time - b.header.time)
    const { header } = ofRank.at(-1)!
    const offset = offsets.get(hostOf(ofRank[0]!.header)) ?? 0
    const steps = new Map<number, RecordedStep>()
    let count = 0
    let [first, last] = [Infinity, -Infinity]
    const visit = ({ kind, step, start, end, loss }: Span) => {
      count++
      if (['F', 'batch', 'input'].includes(kind)) first = Math.min(first, start + offset)
      if (kind !== 'gc') last = Math.max(last, end + offset)
      if (kind !== 'step' || step === undefined) return
      steps.set(step, { start: start + offset, end: end + offset, loss })
    }
    const indexes = ofRank.map((file) => indexSpans(file, visit))
    const whole = { start: first, end: last, loss: undefined }
    return {
      header,
      count,
      steps,
      whole: new Map<number, RecordedStep>(first < last ? [[0, whole]] : []),
      /** Returns the spans except steps that overlap an interval of the common clock, ordered by start. */
      spansBetween: (start: number, end: number): Span[] =>
        indexes
          .flatMap((between) => between(start - offset, end - offset))
          .filter(({ kind }) => kind !== 'step')
          .map((span) => ({ ...span, start: span.start + offset, end: span.end + offset }))
          .sort((a, b) => a.start - b.start),
    }
  })
  // If only rank 0 reports steps, use its steps for all ranks.
  const reported = read.find(({ steps }) => steps.size > 0)?.steps
  const ranks = read.map(({ header, count, steps, whole, spansBetween }) => {
    const windows: ReadonlyMap<number, RecordedStep> = steps.size > 0 ? steps : (reported ?? whole)
    return { header, count, windows, spansBetween }
  })
  const [one, ...others] = ranks
  return {
    runId,
    attempts: new Set(files.map(({ header }) => header.restartCount)).size,
    restartCount: lastAttempt,
    ranks,
    /** Step numbers common to all ranks that report steps, in order. */
    numbers: [...(one?.windows.keys() ?? [])]
      .filter((number) => others.every(({ windows }) => windows.has(number)))
      .sort((a, b) => a - b),
    /** Whether the program reports steps. If not, the whole run counts as one step. */
    hasSteps: reported !== undefined,
    /** Mean number of spans in a step, over all ranks together. */
    spansPerStep: ranks.reduce(
      (sum, { windows, count }) => sum + count / Math.max(1, windows.size),
      0,
    ),
  }
}
