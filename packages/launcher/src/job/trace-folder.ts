import { randomBytes } from 'node:crypto'
import { accessSync, constants, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { makeOwnFolder, readFileText, replaceFile } from '@tsrun/core'
import { spansFolder, TRACE_FILE } from '@tsrun/distributed/record'
import type { OutputOptions, TraceOptions } from '../args/output-options.ts'
import { usageError } from '../args/readers.ts'
import { removeTemporary } from './failure/flight-records.ts'
import type { JobWatcher } from './job.ts'
import { isAlive } from './process/process-use.ts'

/** Bytes of spans per rank for a dashboard without --trace; enough for many seconds. */
const SHOWN_BYTES = 4 * 2 ** 20
/** The prefix of the folder of a dashboard; the process ID of the launcher follows. */
const SHOWN_NAME = 'tsrun-dashboard-'

/**
 * Makes the folder of `--trace`. Without `--trace`, names a temporary folder for the newest spans, from
 * which the dashboard shows steps. Ranks make that folder, and `removeTraceFolder` removes it.
 */
export function openTraceFolder(
  { trace, dashboard }: OutputOptions,
  cwd: string,
): TraceOptions | undefined {
  if (trace === undefined) {
    if (dashboard === undefined) return undefined
    // Remove the folders that killed launchers left behind.
    removeTemporary(SHOWN_NAME, (_, rest) => /^\d+-/.test(rest) && !isAlive(parseInt(rest)))
    const made = join(tmpdir(), `${SHOWN_NAME}${process.pid}-${randomBytes(8).toString('hex')}`)
    return { directory: made, steps: undefined, bytes: SHOWN_BYTES }
  }
  const directory = resolve(cwd, trace.directory)
  try {
    makeOwnFolder(directory)
    // Delete the trace file of an earlier run.
    rmSync(join(directory, TRACE_FILE), { force: true })
    accessSync(directory, constants.W_OK)
  } catch (error) {
    throw usageError(`--trace: ${(error as Error).message}`, error)
  }
  return { ...trace, directory }
}

/** Removes the folder that `openTraceFolder` named for a dashboard. */
export function removeTraceFolder(trace: TraceOptions | undefined): void {
  if (trace !== undefined) rmSync(trace.directory, { recursive: true, force: true })
}

/** Writes the report of a failure beside the spans of the ranks. */
export function traceReport({ directory }: TraceOptions): JobWatcher {
  return {
    showFailure: (report, { runId, restartCount }) => {
      const folder = spansFolder(directory, runId)
      try {
        makeOwnFolder(folder)
        replaceFile(join(folder, reportName(restartCount)), report)
      } catch {
        // The disk may be full; the report is in the output as well.
      }
    },
  }
}

function reportName(attempt: number): string {
  return `attempt-${attempt}.failure.txt`
}

export function readFailureReport(
  directory: string,
  runId: string,
  attempt: number,
): string | undefined {
  try {
    return readFileText(join(spansFolder(directory, runId), reportName(attempt)))
  } catch {
    return undefined
  }
}
