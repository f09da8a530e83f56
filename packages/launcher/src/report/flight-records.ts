import { existsSync, readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import {
  readFlightFolder,
  type FlightDump,
  type FlightFolder,
  describeFinding,
  mergeFlight,
} from '@tsrun/telemetry'

/** The records of one attempt of one run. */
export interface Records extends FlightFolder {
  /** Where they lie. */
  readonly folder: string
  /** What else there was, and why these were taken: a sentence each. */
  readonly notes: readonly string[]
}

/**
 * Finds records in a folder that holds them, or in that of an attempt; in the folder of a run those of
 * the last attempt that left any; in a folder of many runs those of the run that wrote last.
 *
 * @returns undefined when there is no file of a record
 */
export function findRecords(directory: string): Records | undefined {
  for (const folder of [directory, join(directory, 'flight')]) {
    const records = existsSync(folder) ? read(folder) : undefined
    if (records !== undefined) return records
  }
  return lastAttempt(directory) ?? newestRun(directory)
}

function read(folder: string): Records | undefined {
  const { dumps, problems } = readFlightFolder(folder)
  const newest = dumps.toSorted(byTime).at(-1)
  if (newest === undefined) {
    return problems.length === 0 ? undefined : { folder, dumps, problems, notes: [] }
  }
  const isOurs = ({ header }: FlightDump): boolean =>
    header.runId === newest.header.runId && header.restartCount === newest.header.restartCount
  // a folder that TSRUN_FLIGHT_DIR names for many runs
  const notes = dumps
    .filter((dump) => !isOurs(dump))
    .map(({ header: { rank, runId, restartCount } }) => {
      return `left out: that of rank ${rank} is of run ${runId}, attempt ${restartCount}`
    })
  return { folder, dumps: dumps.filter(isOurs), problems, notes }
}

function lastAttempt(run: string): Records | undefined {
  const attempts = attemptsOf(run)
  for (const attempt of attempts.toReversed()) {
    const folder = join(run, `attempt_${attempt}`, 'flight')
    const records = existsSync(folder) ? read(folder) : undefined
    if (records === undefined) continue
    const later = attempts.filter((other) => other > attempt)
    const notes = later.map((other) => `attempt ${other} left no records`)
    return { ...records, notes: [...notes, ...records.notes] }
  }
  return undefined
}

function newestRun(logs: string): Records | undefined {
  const runs = foldersIn(logs).flatMap((name) => lastAttempt(join(logs, name)) ?? [])
  const newest = runs.toSorted((a, b) => byTime(a.dumps.at(-1), b.dumps.at(-1))).at(-1)
  if (newest === undefined || runs.length === 1) return newest
  return { ...newest, notes: [`the last of ${runs.length} runs with records`, ...newest.notes] }
}

/** Ascending. */
function attemptsOf(run: string): number[] {
  return foldersIn(run)
    .flatMap((name) => /^attempt_(\d+)$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b)
}

function foldersIn(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
}

function byTime(a: FlightDump | undefined, b: FlightDump | undefined): number {
  return (a?.header.time ?? '').localeCompare(b?.header.time ?? '')
}

/** Findings that explain a failure; a report has room for some. */
const kinds = ['mismatch', 'missing', 'message']
const SHOWN = 5

/** What the records of a failed life say about its cause: a sentence each. */
export function readFindings(
  directory: string | undefined,
  life: { readonly runId: string; readonly restartCount: number; readonly nodes: number },
): string[] {
  if (directory === undefined || !existsSync(directory)) return []
  // a folder that the user named may hold records of other runs
  const own = readFlightFolder(directory).dumps.filter(
    ({ header }) => header.runId === life.runId && header.restartCount === life.restartCount,
  )
  return mergeFlight(own)
    .filter(({ kind }) => kinds.includes(kind))
    .flatMap((finding) => {
      if (finding.kind !== 'missing' || life.nodes === 1) return [finding]
      // the records of other hosts' ranks are there, not lost
      return finding.missing.length === 0 ? [] : [{ ...finding, unknown: [] }]
    })
    .slice(0, SHOWN)
    .map(describeFinding)
}

/** Where the ranks of one life write their flight records; undefined: nowhere. */
export function flightDirectory(
  logs: string | undefined,
  env: NodeJS.ProcessEnv,
): string | undefined {
  const given = env['TSRUN_FLIGHT_DIR']
  if (given !== undefined && given !== '') return resolve(given)
  return logs === undefined ? undefined : resolve(join(logs, 'flight'))
}

/** The variables with which ranks know. */
export function diagnosisEnvironment(records: string | undefined): Record<string, string> {
  return records === undefined ? {} : { TSRUN_FLIGHT_DIR: records }
}
