import { existsSync, lstatSync, mkdtempSync, rmSync, type Stats } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { namesIn } from '@tsrun/core'
import {
  readFlightFolder,
  writeFlightDump,
  type FlightDump,
  type FlightFolder,
} from '@tsrun/distributed/record'
import { logProblem } from '../../logs/log.ts'
import { attemptsIn } from '../../logs/log-reader.ts'

/** The records of one attempt of one run. */
interface Records extends FlightFolder {
  readonly folder: string
  /** Sentences about omitted records and about the choice of records. */
  readonly notes: readonly string[]
}

/**
 * Finds records in a folder with records or in the folder of an attempt. In the folder of a run, uses
 * the last attempt with records. In a folder of several runs, uses the run that wrote last.
 *
 * @returns undefined if there are no records
 */
export function findRecords(directory: string): Records | undefined {
  for (const folder of [directory, join(directory, 'flight')]) {
    const records = read(folder)
    if (records !== undefined) return records
  }
  return lastAttempt(directory) ?? newestRun(directory)
}

function read(folder: string): Records | undefined {
  if (!existsSync(folder)) return undefined
  const { dumps, problems } = readFlightFolder(folder)
  const newest = dumps.toSorted(byTime).at(-1)
  if (newest === undefined) {
    return problems.length === 0 ? undefined : { folder, dumps, problems, notes: [] }
  }
  const belongs = ({ header }: FlightDump): boolean =>
    header.runId === newest.header.runId && header.restartCount === newest.header.restartCount
  // A folder of TSRUN_FLIGHT_DIR may hold the records of several runs.
  const notes = dumps
    .filter((dump) => !belongs(dump))
    .map(({ header: { rank, runId, restartCount } }) => {
      return `left out: the record of rank ${rank}, which belongs to run ${runId}, attempt ${restartCount}`
    })
  return { folder, dumps: dumps.filter(belongs), problems, notes }
}

function lastAttempt(run: string): Records | undefined {
  const attempts = attemptsIn(run)
  for (const attempt of attempts.toReversed()) {
    const records = read(join(run, `attempt_${attempt}`, 'flight'))
    if (records === undefined) continue
    const later = attempts.filter((other) => other > attempt)
    const notes = later.map((other) => `attempt ${other} left no records`)
    return { ...records, notes: [...notes, ...records.notes] }
  }
  return undefined
}

function newestRun(logs: string): Records | undefined {
  const runs = namesIn(logs).flatMap((name) => lastAttempt(join(logs, name)) ?? [])
  const newest = runs.toSorted((a, b) => byTime(a.dumps.at(-1), b.dumps.at(-1))).at(-1)
  if (newest === undefined || runs.length === 1) return newest
  return { ...newest, notes: [`the newest of ${runs.length} runs with records`, ...newest.notes] }
}

function byTime(a: FlightDump | undefined, b: FlightDump | undefined): number {
  return (a?.header.time ?? '').localeCompare(b?.header.time ?? '')
}

/** An attempt of a run. */
type Run = Pick<FlightDump['header'], 'runId' | 'restartCount'>

/** Reads the flight records of the given ranks in one attempt. */
export function readFlight(
  directory: string | undefined,
  { runId, restartCount }: Run,
  ranks: readonly number[],
): FlightDump[] {
  // A folder chosen by the user may hold records of other runs and of ranks of other hosts.
  return readAll(directory).filter(
    ({ header }) =>
      header.runId === runId && header.restartCount === restartCount && ranks.includes(header.rank),
  )
}

function readAll(directory: string | undefined): readonly FlightDump[] {
  if (directory === undefined || !existsSync(directory)) return []
  return readFlightFolder(directory).dumps
}

/** Adds the records of ranks on other hosts, unless a shared folder already holds them. */
export function addFlight(
  folder: string | undefined,
  dumps: readonly FlightDump[],
  run: Run,
): void {
  if (folder === undefined) return
  const ranks = dumps.map(({ header }) => header.rank)
  const here = readFlight(folder, run, ranks).map(({ header }) => header.rank)
  try {
    for (const dump of dumps) if (!here.includes(dump.header.rank)) writeFlightDump(folder, dump)
  } catch (error) {
    logProblem(error, 'no records of other hosts')
  }
}

const TEMPORARY = 'tsrun-flight-'
/** Milliseconds for which temporary folders with records are kept: a week. */
const LONGEST_KEPT = 7 * 86_400_000

/**
 * Opens the folder in which the ranks of one attempt write their flight records: that of
 * TSRUN_FLIGHT_DIR, else `flight` beside the logs, else a new temporary folder that only this user can
 * read.
 */
export function openFlightPlace(logs: string | undefined, env: NodeJS.ProcessEnv) {
  const given = env['TSRUN_FLIGHT_DIR']
  let folder = logs && resolve(logs, 'flight')
  if (given !== undefined && given !== '') folder = resolve(given)
  const isTemporary = folder === undefined
  try {
    folder ??= mkdtempSync(join(tmpdir(), TEMPORARY))
  } catch {
    // Continue, because the job can run without records.
  }
  /** The environment variable that passes the folder to the ranks. */
  const environment: Record<string, string> =
    folder === undefined ? {} : { TSRUN_FLIGHT_DIR: folder }
  /** The folder, if it is temporary and holds records, so that the report must name it. */
  const kept = (): string | undefined =>
    isTemporary && readAll(folder).some(({ entries }) => entries.length > 0) ? folder : undefined
  return {
    /** Undefined if no folder can be created. */
    folder,
    environment,
    kept,
    /** Removes a temporary folder, unless the job has failed and the folder holds records. */
    close: (hasFailed: boolean): void => {
      if (!isTemporary || folder === undefined) return
      if (!hasFailed || kept() === undefined) rmSync(folder, { recursive: true, force: true })
      else removeTemporary(TEMPORARY, ({ mtimeMs }) => Date.now() - mtimeMs > LONGEST_KEPT)
    },
  }
}

/** Removes folders of this user for temporary files whose names begin with `prefix`. */
export function removeTemporary(
  prefix: string,
  isOver: (status: Stats, rest: string) => boolean,
): void {
  for (const name of namesIn(tmpdir())) {
    if (!name.startsWith(prefix)) continue
    const path = join(tmpdir(), name)
    const status = lstatSync(path, { throwIfNoEntry: false })
    if (status?.isDirectory() !== true || status.uid !== process.getuid?.()) continue
    if (isOver(status, name.slice(prefix.length))) rmSync(path, { recursive: true, force: true })
  }
}
