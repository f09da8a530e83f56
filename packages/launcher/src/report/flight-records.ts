import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createLogger } from '@tsrun/core'
import {
  readFlightFolder,
  writeFlightDump,
  type FlightDump,
  type FlightFolder,
} from '@tsrun/distributed/record'
import type { FlightFinding } from './flight-findings.ts'
import { mergeFlight } from './flight-merge.ts'

/** The records of one attempt of one run. */
export interface Records extends FlightFolder {
  readonly folder: string
  /** What was left out, and why these were chosen: a sentence each. */
  readonly notes: readonly string[]
}

/**
 * Finds records in a folder that holds them or in the folder of an attempt; in the folder of a run, those of
 * the last attempt that left any; in a folder of several runs, those of the run that wrote last.
 *
 * @returns undefined where there is no file with a record
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
  const belongs = ({ header }: FlightDump): boolean =>
    header.runId === newest.header.runId && header.restartCount === newest.header.restartCount
  // A folder that TSRUN_FLIGHT_DIR names may hold the records of several runs.
  const notes = dumps
    .filter((dump) => !belongs(dump))
    .map(({ header: { rank, runId, restartCount } }) => {
      return `left out: the record of rank ${rank}, which belongs to run ${runId}, attempt ${restartCount}`
    })
  return { folder, dumps: dumps.filter(belongs), problems, notes }
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
  return { ...newest, notes: [`the newest of ${runs.length} runs with records`, ...newest.notes] }
}

/** Ascending. */
function attemptsOf(run: string): number[] {
  return foldersIn(run)
    .flatMap((name) => /^attempt_(\d+)$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b)
}

function foldersIn(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name)
  } catch {
    return []
  }
}

function byTime(a: FlightDump | undefined, b: FlightDump | undefined): number {
  return (a?.header.time ?? '').localeCompare(b?.header.time ?? '')
}

/** The kinds of findings that explain a failure; a report has room for a few. */
const kinds = ['mismatch', 'missing', 'message']
const SHOWN = 5

/** The records that these ranks have left in one attempt. */
export function readFlight(
  directory: string | undefined,
  {
    runId,
    restartCount,
    ranks,
  }: {
    readonly runId: string
    readonly restartCount: number
    readonly ranks: readonly number[]
  },
): FlightDump[] {
  if (directory === undefined || !existsSync(directory)) return []
  // A folder that the user has named may hold records of other runs, and of the ranks of other hosts.
  return readFlightFolder(directory).dumps.filter(
    ({ header }) =>
      header.runId === runId && header.restartCount === restartCount && ranks.includes(header.rank),
  )
}

/**
 * What the records of a failed attempt say about its cause.
 *
 * @param known - the ranks of the hosts that have reported: no record of another rank is missing
 */
export function findCauses(
  dumps: readonly FlightDump[],
  known: readonly number[],
): FlightFinding[] {
  return mergeFlight(dumps)
    .filter(({ kind }) => kinds.includes(kind))
    .flatMap((finding): FlightFinding[] => {
      if (finding.kind !== 'missing') return [finding]
      const unknown = finding.unknown.filter((rank) => known.includes(rank))
      return finding.missing.length + unknown.length === 0 ? [] : [{ ...finding, unknown }]
    })
    .slice(0, SHOWN)
}

/** Adds the records of ranks of other hosts, except where a shared file system has brought the whole ones. */
export function addFlight(
  folder: string | undefined,
  dumps: readonly FlightDump[],
  run: { readonly runId: string; readonly restartCount: number },
): void {
  if (folder === undefined) return
  const ranks = dumps.map(({ header }) => header.rank)
  const here = readFlight(folder, { ...run, ranks }).map(({ header }) => header.rank)
  try {
    for (const dump of dumps) if (!here.includes(dump.header.rank)) writeFlightDump(folder, dump)
  } catch (error) {
    createLogger('launcher').info({ reason: (error as Error).message }, 'no records of other hosts')
  }
}

/** Where the ranks of one attempt write their flight records. */
export interface FlightPlace {
  /** Undefined where no folder can be made. */
  readonly folder: string | undefined
  /** The variable that tells the ranks. */
  readonly environment: Readonly<Record<string, string>>
  /** The folder, if it is a temporary one and holds records: the report has to name it. */
  kept(): string | undefined
  /** Removes a temporary folder, unless the job has failed and there are records in it. */
  close(hasFailed: boolean): void
}

/**
 * The folder that TSRUN_FLIGHT_DIR names, else `flight` beside the logs, else a new temporary folder that
 * only this user can read.
 */
export function openFlightPlace(logs: string | undefined, env: NodeJS.ProcessEnv): FlightPlace {
  const given = env['TSRUN_FLIGHT_DIR']
  if (given !== undefined && given !== '') return lasting(resolve(given))
  if (logs !== undefined) return lasting(resolve(logs, 'flight'))
  let folder: string
  try {
    folder = mkdtempSync(join(tmpdir(), 'tsrun-flight-'))
  } catch {
    // The job can do without records.
    return { folder: undefined, environment: {}, kept: () => undefined, close: () => undefined }
  }
  const kept = (): string | undefined =>
    existsSync(folder) && readFlightFolder(folder).dumps.some(({ entries }) => entries.length > 0)
      ? folder
      : undefined
  return {
    folder,
    environment: { TSRUN_FLIGHT_DIR: folder },
    kept,
    close: (hasFailed) => {
      if (hasFailed && kept() !== undefined) return
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function lasting(folder: string): FlightPlace {
  const environment = { TSRUN_FLIGHT_DIR: folder }
  return { folder, environment, kept: () => undefined, close: () => undefined }
}
