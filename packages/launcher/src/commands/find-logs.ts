import { readdirSync, statSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { tsrError, type TsrError } from '@tsrun/core'
import { readRuns, type RunRecord } from '../job/run-records.ts'
import { attemptsIn, ranksIn } from '../logs/log-reader.ts'

/** The log files of a run. */
export interface FoundLogs {
  /** DIR/RUN-ID */
  readonly folder: string
  /** The attempt to show; undefined: all. */
  readonly attempt: number | undefined
  /** The rank to show; undefined: all. */
  readonly rank: number | undefined
  /** This host's record of the run. */
  readonly record: RunRecord | undefined
}

/**
 * Finds the log files of a run, by default of the newest run of this host. `given` is the beginning of a
 * run ID, or a folder of --log-dir, of a run, of an attempt or of a rank.
 *
 * @throws ERR_TSR_NO_LOGS
 */
export function findLogs(
  given: string | undefined,
  env: NodeJS.ProcessEnv,
  cwd: string,
): FoundLogs {
  const runs = readRuns(env)
  if (given === undefined) {
    const [newest] = runs
    if (newest !== undefined) return ofRecord(newest, 'the newest run', runs)
    throw noLogs('the newest run', 'no run of yours is known on this host')
  }
  const path = resolve(cwd, given)
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true) return inFolder(path, runs)
  const exact = runs.filter(({ runId }) => runId === given)
  const [record, other] =
    exact.length > 0 ? exact : runs.filter(({ runId }) => runId.startsWith(given))
  if (other !== undefined) {
    throw noLogs(`run ${given}`, `the ids of several runs begin so: ${namesOf(runs, given)}`)
  }
  if (record !== undefined) return ofRecord(record, `run ${record.runId}`, runs)
  const named = join(resolve(cwd, env['TSRUN_LOG_DIR'] ?? 'logs'), given)
  if (attemptsIn(named).length > 0) return inFolder(named, runs)
  const known = runs.length === 0 ? 'none is known' : `the newest are ${namesOf(runs, '')}`
  throw noLogs(given, `there is no such folder, and no run of this host has this id; ${known}`)
}

function ofRecord(record: RunRecord, name: string, runs: readonly RunRecord[]): FoundLogs {
  const { runId, script, logDir } = record
  if (logDir !== null) {
    return { folder: join(logDir, runId), attempt: undefined, rank: undefined, record }
  }
  const kept = runs.find((run) => run.logDir !== null)
  const other = kept === undefined ? '' : `; the newest run with files is ${kept.runId}`
  const which = name.endsWith(runId) ? basename(script) : `${runId}, ${basename(script)}`
  throw noLogs(`${name} (${which})`, `its output was not kept${other}`)
}

function inFolder(path: string, runs: readonly RunRecord[]): FoundLogs {
  const of = (folder: string, attempt?: number, rank?: number): FoundLogs => {
    const record = runs.find(
      ({ runId, logDir }) => logDir !== null && resolve(logDir, runId) === folder,
    )
    return { folder, attempt, rank, record }
  }
  const attempt = /^attempt_(\d+)$/.exec(basename(path))?.[1]
  if (attempt !== undefined) return of(dirname(path), Number(attempt))
  const above = /^attempt_(\d+)$/.exec(basename(dirname(path)))?.[1]
  if (above !== undefined && ranksIn(dirname(path)).includes(Number(basename(path)))) {
    return of(dirname(dirname(path)), Number(above), Number(basename(path)))
  }
  if (attemptsIn(path).length > 0) return of(path)
  const newest = readFolder(path)
    .map((name) => join(path, name))
    .filter((folder) => attemptsIn(folder).length > 0)
    .map((folder) => ({ folder, time: timeOf(folder) }))
    .toSorted((a, b) => b.time - a.time)[0]
  if (newest !== undefined) return of(newest.folder)
  throw noLogs(path, 'there are no log files of a run in this folder')
}

/** @throws ERR_TSR_NO_LOGS */
function readFolder(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch (error) {
    throw noLogs(folder, (error as Error).message)
  }
}

function timeOf(run: string): number {
  return statSync(join(run, `attempt_${attemptsIn(run).at(-1)!}`)).mtimeMs
}

function namesOf(runs: readonly RunRecord[], beginning: string): string {
  const names = runs.map(({ runId }) => runId).filter((runId) => runId.startsWith(beginning))
  return names.slice(0, 3).join(', ')
}

export function noLogs(run: string, problem: string): TsrError {
  return tsrError('ERR_TSR_NO_LOGS', { run, problem })
}
