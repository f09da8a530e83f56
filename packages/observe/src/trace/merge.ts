import { randomBytes } from 'node:crypto'
import { renameSync, rmSync } from 'node:fs'
import { checkReplaceable } from '@tsrun/core'
import { writeChromeTrace } from './chrome-trace.ts'
import { findTracedRun, type TracedRun } from './traced-run.ts'

/** The contents of a trace for Perfetto. */
export interface MergedTrace {
  readonly spans: number
  readonly ranks: ReadonlySet<number>
}

/**
 * Merges the span files of a run into a file for Perfetto.
 *
 * @returns undefined if there are no span files
 * @throws the errors of the file system
 */
export function mergeTrace(
  directories: readonly string[],
  runId: string,
  file: string,
): MergedTrace | undefined {
  const run = findTracedRun(directories, runId)
  if (run === undefined) return undefined
  const ranks = new Set(run.files.map(({ header }) => header.rank))
  return { spans: writeMerged(run, file), ranks }
}

/**
 * Writes the file for Perfetto atomically.
 *
 * @returns the number of spans
 * @throws Error if the path exists and is not a regular file
 */
export function writeMerged({ files }: TracedRun, path: string): number {
  checkReplaceable(path)
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
