import { existsSync, rmSync, statSync } from 'node:fs'
import { hostname } from 'node:os'
import { join, resolve } from 'node:path'
import {
  choice,
  count,
  distrustOf,
  flag,
  integer,
  makeOwnFolder,
  namesIn,
  object,
  parseJson,
  readFileText,
  readVariable,
  replaceFile,
  text,
  tsrunHome,
  type Of,
} from '@tsrun/core'
import { logProblem } from '../logs/log.ts'
import { isAlive } from './process/process-use.ts'
import { statFields } from './process/rank-process.ts'

/** The record with which `tsrun logs` finds a run: a JSON file in TSRUN_RUNS_DIR, or below TSRUN_HOME. */
const runRecord = object({
  format: choice(1),
  runId: text,
  script: text,
  host: text,
  launcherPid: count(),
  /** The start time of the launcher in clock ticks since boot; null without /proc. */
  launcherStart: text.nullable(),
  /** In the format of ISO 8601. */
  startedAt: text,
  /** The folder of `--log-dir`; null without log files. */
  logDir: text.nullable(),
  /** In ISO 8601; null while the job is running, or if its launcher was killed. */
  endedAt: text.nullable(),
  exitCode: integer.nullable(),
})

export type RunRecord = Of<typeof runRecord>

type Environment = Readonly<Record<string, string | undefined>>

/** Maximum number of records. */
const KEPT = 200

/** Records the start of a run. The returned function records its end. Failures are only logged. */
export function recordRun(
  env: Environment,
  cwd: string,
  run: Pick<RunRecord, 'runId' | 'script'> & { readonly logDir: string | undefined },
): (exitCode: number) => void {
  const record: RunRecord = {
    format: 1,
    runId: run.runId,
    script: run.script,
    host: hostname(),
    launcherPid: process.pid,
    launcherStart: startOf(process.pid) ?? null,
    startedAt: new Date().toISOString(),
    logDir: run.logDir === undefined ? null : resolve(cwd, run.logDir),
    endedAt: null,
    exitCode: null,
  }
  const write = (given: RunRecord): void => {
    try {
      const folder = recordsFolder(env)
      const distrust = distrustOfRecords(env)
      if (distrust !== undefined) throw new Error(`${folder}: ${distrust}`)
      makeOwnFolder(folder)
      replaceFile(pathOf(record, env), `${JSON.stringify(given)}\n`)
    } catch (error) {
      logProblem(error, 'no record of this run')
    }
  }
  write(record)
  prune(env)
  return (exitCode) => {
    write({ ...record, endedAt: new Date().toISOString(), exitCode })
  }
}

function recordsFolder(env: Environment): string {
  const folder = env['TSRUN_RUNS_DIR'] ?? ''
  return folder !== '' ? resolve(folder) : join(tsrunHome(env), 'runs')
}

/** Returns why the records are not used: other users could write them, or see the scripts of this user. */
function distrustOfRecords(env: Environment): string | undefined {
  const given = env['TSRUN_RUNS_DIR'] ?? ''
  return (given === '' ? distrustOf(tsrunHome(env)) : undefined) ?? distrustOf(recordsFolder(env))
}

/** The maximum number of jobs whose output is kept. */
const KEPT_JOBS = 5
/** Maximum bytes of the kept output of one job, and of all kept output when a job starts. */
export const KEPT_BYTES = 8 * 2 ** 20

/** The folder that keeps the output of jobs without `--log-dir`; undefined if output is not kept. */
export function keptLogs(env: Environment): string | undefined {
  const isWanted = readVariable('TSRUN_KEEP_LOGS', flag.default(true), env)
  if (!isWanted || (distrustOfRecords(env) ?? distrustOf(tsrunHome(env))) !== undefined) {
    return undefined
  }
  try {
    makeOwnFolder(keptFolder(env))
    return keptFolder(env)
  } catch {
    return undefined
  }
}

function keptFolder(env: Environment): string {
  return join(tsrunHome(env), 'logs')
}

function sizeOf(folder: string): number {
  return namesIn(folder, true)
    .map((name) => statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0)
    .reduce((sum, size) => sum + size, 0)
}

/** The recorded runs of this host, the newest first. */
export function readRuns(env: Environment): RunRecord[] {
  if (distrustOfRecords(env) !== undefined) return []
  const host = hostname()
  return namesIn(recordsFolder(env))
    .filter((name) => name.endsWith(`@${host}.json`))
    .flatMap((name) => readRecord(join(recordsFolder(env), name)) ?? [])
    .toSorted((a, b) => (a.startedAt + a.runId < b.startedAt + b.runId ? 1 : -1))
}

export function reread(record: RunRecord, env: Environment): RunRecord {
  return readRecord(pathOf(record, env)) ?? record
}

export function isRunning({ endedAt, launcherPid, launcherStart }: RunRecord): boolean {
  if (endedAt !== null) return false
  // Another process may have reused the process ID.
  return launcherStart === null ? isAlive(launcherPid) : startOf(launcherPid) === launcherStart
}

function pathOf({ runId, host }: Pick<RunRecord, 'runId' | 'host'>, env: Environment): string {
  return join(recordsFolder(env), `${runId}@${host}.json`.replaceAll('/', '_'))
}

function startOf(pid: number): string | undefined {
  // Field 22 of /proc/PID/stat: starttime.
  return statFields(pid)?.[19]
}

/** Deletes kept logs above the limits, records whose log files are gone, and old records. */
function prune(env: Environment): void {
  let [records, jobs, bytes] = [0, 0, 0]
  for (const record of readRuns(env)) {
    const { logDir, runId } = record
    const logs = logDir === null ? undefined : join(logDir, runId)
    if (logs !== undefined && logDir === keptFolder(env)) {
      bytes += sizeOf(logs)
      const isOver = ++jobs > KEPT_JOBS || bytes > KEPT_BYTES
      if (isOver && !isRunning(record)) rmSync(logs, { recursive: true, force: true })
    }
    const isGone = logs !== undefined && !existsSync(logs)
    if (!isGone && ++records <= KEPT) continue
    if (!isRunning(record)) rmSync(pathOf(record, env), { force: true })
  }
}

function readRecord(path: string): RunRecord | undefined {
  try {
    return parseJson(readFileText(path), runRecord)
  } catch {
    return undefined
  }
}
