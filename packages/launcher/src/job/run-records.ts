import { existsSync, readdirSync, rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { join, resolve } from 'node:path'
import {
  choice,
  count,
  createLogger,
  distrustOf,
  integer,
  makeOwnFolder,
  object,
  parseJson,
  readFileText,
  replaceFile,
  text,
  tsrunHome,
  type Of,
} from '@tsrun/core'
import { statFields } from './process/rank-process.ts'

/**
 * The record of a run of this user on this host, with which `tsrun logs` finds its log files. It is a JSON
 * file in TSRUN_RUNS_DIR, or below TSRUN_HOME.
 */
const runRecord = object({
  format: choice(1),
  runId: text,
  script: text,
  host: text,
  launcherPid: count(),
  /** When that launcher started, in clock ticks since boot; null without /proc. */
  launcherStart: text.nullable(),
  /** ISO 8601. */
  startedAt: text,
  /** The folder of `--log-dir`; null: there are no log files. */
  logDir: text.nullable(),
  /** ISO 8601; null: the job is running, or its launcher was killed. */
  endedAt: text.nullable(),
  exitCode: integer.nullable(),
})

export type RunRecord = Of<typeof runRecord>

type Environment = Readonly<Record<string, string | undefined>>

/** Maximum number of records of runs with log files, and of runs without. */
const KEPT = { with: 200, without: 20 }

/**
 * Records the start of a run. The returned function records its end. Failures are only logged, because
 * a job does not need its record.
 */
export function recordRun(
  env: Environment,
  cwd: string,
  run: Pick<RunRecord, 'runId' | 'script'> & { readonly logDir: string | undefined },
): (exitCode: number) => void {
  const host = hostname()
  const path = pathOf({ runId: run.runId, host }, env)
  const record: RunRecord = {
    ...{ format: 1, runId: run.runId, script: run.script, host, launcherPid: process.pid },
    launcherStart: startOf(process.pid) ?? null,
    startedAt: new Date().toISOString(),
    logDir: run.logDir === undefined ? null : resolve(cwd, run.logDir),
    ...{ endedAt: null, exitCode: null },
  }
  const write = (given: RunRecord): void => {
    try {
      const folder = recordsFolder(env)
      const distrust = distrustOfRecords(env)
      if (distrust !== undefined) throw new Error(`${folder}: ${distrust}`)
      makeOwnFolder(folder)
      replaceFile(path, `${JSON.stringify(given)}\n`)
    } catch (error) {
      createLogger('launcher').info({ reason: (error as Error).message }, 'no record of this run')
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

/** Why the records are not used: other users could write them, or read which scripts this user runs. */
function distrustOfRecords(env: Environment): string | undefined {
  const given = env['TSRUN_RUNS_DIR'] ?? ''
  return (given === '' ? distrustOf(tsrunHome(env)) : undefined) ?? distrustOf(recordsFolder(env))
}

/** The recorded runs of this host, the newest first. */
export function readRuns(env: Environment): RunRecord[] {
  if (distrustOfRecords(env) !== undefined) return []
  const host = hostname()
  return namesIn(recordsFolder(env))
    .filter((name) => name.endsWith(`@${host}.json`))
    .flatMap((name) => readRecord(join(recordsFolder(env), name)) ?? [])
    .toSorted((a, b) => (a.startedAt < b.startedAt ? 1 : -1))
}

/** Reads the record again. */
export function reread(record: RunRecord, env: Environment): RunRecord {
  return readRecord(pathOf(record, env)) ?? record
}

/** Whether the launcher of the run is still running. */
export function isRunning({ endedAt, launcherPid, launcherStart }: RunRecord): boolean {
  if (endedAt !== null) return false
  // Another process may have reused the process ID.
  if (launcherStart !== null) return startOf(launcherPid) === launcherStart
  try {
    return process.kill(launcherPid, 0)
  } catch {
    return false
  }
}

function pathOf({ runId, host }: Pick<RunRecord, 'runId' | 'host'>, env: Environment): string {
  return join(recordsFolder(env), `${runId}@${host}.json`.replaceAll('/', '_'))
}

function startOf(pid: number): string | undefined {
  // Field 22 of /proc/PID/stat: starttime.
  return statFields(pid)?.[19]
}

/** Deletes the records of runs whose log files are gone, and the oldest records above the limits. */
function prune(env: Environment): void {
  const kept = { with: 0, without: 0 }
  for (const record of readRuns(env)) {
    const { logDir, runId, endedAt } = record
    const isGone = endedAt !== null && logDir !== null && !existsSync(join(logDir, runId))
    const kind = logDir === null ? 'without' : 'with'
    if (!isGone && ++kept[kind] <= KEPT[kind]) continue
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

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
