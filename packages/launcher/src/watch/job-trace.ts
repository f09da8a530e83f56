import { randomBytes } from 'node:crypto'
import { renameSync, rmSync } from 'node:fs'
import { isAbsolute, join, relative, resolve } from 'node:path'
import { formatRanks, makeOwnFolder } from '@tsrun/core'
import { findTracedRun, writeChromeTrace } from '@tsrun/telemetry'
import type { TraceOptions } from '../args/output-options.ts'
import { usageError } from '../args/read-setting.ts'
import type { Announcer } from '../logs/console.ts'

/** The file for Perfetto, in the folder of a trace. */
export const TRACE_FILE = 'trace.json'

/** Makes the folder of a trace. @throws ERR_TSR_USAGE when it cannot be made */
export function openTraceFolder(trace: TraceOptions, cwd: string): TraceOptions {
  const directory = resolve(cwd, trace.directory)
  try {
    makeOwnFolder(directory)
  } catch (error) {
    throw usageError(`--trace: ${(error as Error).message}`, error)
  }
  return { ...trace, directory }
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
