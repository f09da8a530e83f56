import { randomBytes } from 'node:crypto'
import { readFileSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { isAbsolute, join, relative, resolve } from 'node:path'
import { formatRanks, makeOwnFolder, replaceFile } from '@tsrun/core'
import { findTracedRun, spansFolder, writeChromeTrace } from '@tsrun/telemetry'
import type { OutputOptions, TraceOptions } from '../args/output-options.ts'
import { usageError } from '../args/read-setting.ts'
import type { AttemptFacts, JobWatcher } from '../job/job.ts'
import type { Announcer } from '../logs/console.ts'

/** The file for Perfetto, in the folder of a trace. */
export const TRACE_FILE = 'trace.json'

/** Of each rank, what a dashboard without --trace keeps: many seconds. */
const SHOWN_BYTES = 4 * 2 ** 20

/**
 * Makes the folder of a trace; without one, names one for the newest spans, from which the dashboard shows
 * steps: ranks make it, and `removeTraceFolder` removes it.
 *
 * @throws ERR_TSR_USAGE when it cannot be made
 */
export function openTraceFolder(
  { trace, dashboard }: Pick<OutputOptions, 'trace' | 'dashboard'>,
  cwd: string,
): TraceOptions | undefined {
  if (trace === undefined) {
    if (dashboard === undefined) return undefined
    const made = join(tmpdir(), `tsrun-dashboard-${randomBytes(8).toString('hex')}`)
    return { directory: made, steps: undefined, bytes: SHOWN_BYTES }
  }
  const directory = resolve(cwd, trace.directory)
  try {
    makeOwnFolder(directory)
  } catch (error) {
    throw usageError(`--trace: ${(error as Error).message}`, error)
  }
  return { ...trace, directory }
}

/** Removes the folder that `openTraceFolder` has named for a dashboard. */
export function removeTraceFolder(trace: TraceOptions | undefined): void {
  if (trace !== undefined) rmSync(trace.directory, { recursive: true, force: true })
}

/** Keeps the report of a failure beside what the ranks have written. */
export class TraceReport implements JobWatcher {
  readonly #directory: string
  #runId = ''

  constructor({ directory }: TraceOptions) {
    this.#directory = directory
  }

  follow({ runId }: AttemptFacts): void {
    this.#runId = runId
  }

  showFailure(report: string): void {
    const folder = spansFolder(this.#directory, this.#runId)
    try {
      makeOwnFolder(folder)
      replaceFile(join(folder, REPORT_FILE), report)
    } catch {
      // The disk may be full; the report is in the output as well.
    }
  }
}

const REPORT_FILE = 'failure.txt'

/** The report of the last failure of a run. */
export function readFailureReport(directory: string, runId: string): string | undefined {
  try {
    return readFileSync(join(spansFolder(directory, runId), REPORT_FILE), 'utf8')
  } catch {
    return undefined
  }
}

/** Puts together what the ranks of a run have written, and says so. */
export function finishTrace(
  { directory, steps }: TraceOptions,
  runId: string,
  cwd: string,
  announcer: Announcer,
): void {
  const shown = nameOf(directory, cwd)
  try {
    const run = findTracedRun([directory], runId)
    const spans = run === undefined ? 0 : mergeTrace(run, join(directory, TRACE_FILE))
    if (run === undefined || spans === 0) {
      const reason =
        run === undefined || steps === undefined
          ? 'ranks write one if they call initProcessGroup()'
          : `no rank has reported such a step (--trace-steps ${steps})`
      announcer.say('trace', `trace: there is nothing in it: ${reason}`, { directory })
      return
    }
    const ranks = new Set(run.files.map(({ header }) => header.rank))
    const facts = { file: join(directory, TRACE_FILE), spans, ranks: ranks.size }
    announcer.say(
      'trace',
      `trace: ${join(shown, TRACE_FILE)} (${spans.toLocaleString('en')} spans of ${formatRanks(ranks)}), ` +
        `which https://ui.perfetto.dev opens; tsrun trace ${shown} summarizes it`,
      facts,
    )
  } catch (error) {
    announcer.say('trace', `trace: it could not be put together: ${(error as Error).message}`)
  }
}

/**
 * Writes the file for Perfetto, which is there as a whole or not at all.
 *
 * @returns the number of spans
 */
export function mergeTrace(
  { files }: NonNullable<ReturnType<typeof findTracedRun>>,
  path: string,
): number {
  const unfinished = `${path}.${randomBytes(6).toString('hex')}`
  try {
    const spans = writeChromeTrace(files, unfinished)
    renameSync(unfinished, path)
    return spans
  } catch (error) {
    rmSync(unfinished, { force: true })
    throw error
  }
}

/** As somebody in `cwd` would type it. */
function nameOf(directory: string, cwd: string): string {
  const path = relative(cwd, directory)
  return path === '' ? '.' : path.startsWith('..') || isAbsolute(path) ? directory : path
}
