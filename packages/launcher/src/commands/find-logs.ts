import { readdirSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { tsrError, type TsrError } from '@tsrun/core'
import { readRuns, type RunRecord } from '../job/run-records.ts'
import { attemptsIn } from '../logs/log-reader.ts'

export interface FoundLogs {
  /** The folder of the run, DIR/RUN-ID. */
  readonly folder: string
  /** This host's record of the run. */
  readonly record: RunRecord | undefined
}

/**
 * Finds the log files of a run, by default of the newest run of this host. `given` is the beginning of a
 * run ID, the folder of a run, or the folder of --log-dir, which stands for its newest run.
 */
export function findLogs(
  given: string | undefined,
  env: NodeJS.ProcessEnv,
  cwd: string,
): FoundLogs {
  const runs = readRuns(env)
  const path = resolve(cwd, given ?? '')
  const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  if (given !== undefined && isFolder) return findInFolder(path, runs)
  const [record, other] = runs.filter(({ runId }) => runId.startsWith(given ?? ''))
  if (record === undefined) {
    const newest = runs.slice(0, 3).map(({ runId }) => runId)
    throw noLogs(
      given ?? 'the newest run',
      newest.length === 0
        ? 'no run of yours is known on this host'
        : `there is no such folder, and no run of this host has this id; the newest are ${newest.join(', ')}`,
    )
  }
  const { runId, logDir } = record
  if (given !== undefined && other !== undefined) {
    throw noLogs(`run ${given}`, `several ids begin so: ${runId}, ${other.runId}`)
  }
  if (logDir === null) throw noLogs(`run ${runId}`, 'its output was not kept')
  return { folder: join(logDir, runId), record }
}

function findInFolder(path: string, runs: readonly RunRecord[]): FoundLogs {
  const [folder] = [path, ...readdirSync(path).map((name) => join(path, name))]
    .filter((each) => attemptsIn(each).length > 0)
    .toSorted((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)
  if (folder === undefined) {
    throw noLogs(path, 'there are no log files of a run in this folder')
  }
  const record = runs.find(
    ({ runId, logDir }) => logDir !== null && resolve(logDir, runId) === folder,
  )
  return { folder, record }
}

export function noLogs(run: string, problem: string): TsrError {
  return tsrError('ERR_TSR_NO_LOGS', { run, problem })
}
