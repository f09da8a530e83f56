import { randomBytes } from 'node:crypto'
import { accessSync, constants, existsSync, lstatSync, rmSync, type Stats } from 'node:fs'
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

interface Records extends FlightFolder {
  readonly folder: string
  /** The header of the newest record; undefined if no file is a usable record. */
  readonly newest: FlightDump['header'] | undefined
  /** One sentence about each omitted record. */
  readonly notes: readonly string[]
}

/**
 * Finds the newest flight records in a folder, which may hold the records themselves, or be the folder of
 * an attempt, of a run, or of several runs.
 */
export function findRecords(directory: string): Records | undefined {
  const runs = [directory, ...namesIn(directory).map((name) => join(directory, name))]
  const attempts = runs.flatMap((run) =>
    attemptsIn(run).map((attempt) => join(run, `attempt_${attempt}`)),
  )
  const folders = [directory, ...[directory, ...attempts].map((folder) => join(folder, 'flight'))]
  return folders
    .flatMap((folder) => read(folder) ?? [])
    .toSorted((a, b) => byTime(a.newest, b.newest))
    .at(-1)
}

function read(folder: string): Records | undefined {
  if (!existsSync(folder)) return undefined
  const { dumps, problems } = readFlightFolder(folder)
  const newest = dumps
    .map(({ header }) => header)
    .toSorted(byTime)
    .at(-1)
  if (newest === undefined && problems.length === 0) return undefined
  const belongs = ({ header }: FlightDump): boolean =>
    header.runId === newest?.runId && header.restartCount === newest.restartCount
  // A folder of TSRUN_FLIGHT_DIR may hold the records of several runs.
  const notes = dumps
    .filter((dump) => !belongs(dump))
    .map(({ header: { rank, runId, restartCount } }) => {
      return `left out: the record of rank ${rank}, which belongs to run ${runId}, attempt ${restartCount}`
    })
  return { folder, newest, dumps: dumps.filter(belongs), problems, notes }
}

function byTime(a: Records['newest'], b: Records['newest']): number {
  return (a?.time ?? '').localeCompare(b?.time ?? '')
}

type Run = Pick<FlightDump['header'], 'runId' | 'restartCount'>

export function readFlight(
  directory: string,
  { runId, restartCount }: Run,
  ranks: readonly number[],
): FlightDump[] {
  // A folder chosen by the user may hold records of other runs and of ranks of other hosts.
  return readAll(directory).filter(
    ({ header }) =>
      header.runId === runId && header.restartCount === restartCount && ranks.includes(header.rank),
  )
}

function readAll(directory: string): readonly FlightDump[] {
  return existsSync(directory) ? readFlightFolder(directory).dumps : []
}

/** Adds the records of ranks on other hosts, unless a shared folder already holds them. */
export function addFlight(folder: string, dumps: readonly FlightDump[], run: Run): void {
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
 * Chooses the folder for the flight records of one attempt: the value of TSRUN_FLIGHT_DIR, else `flight`
 * beside the logs, else a temporary folder. The ranks create it, and only this user can read it.
 */
export function flightPlace(logs: string | undefined, env: NodeJS.ProcessEnv) {
  const given = env['TSRUN_FLIGHT_DIR'] ?? ''
  const named = given === '' ? logs && join(logs, 'flight') : given
  const folder = resolve(named ?? join(tmpdir(), TEMPORARY + randomBytes(8).toString('hex')))
  let forRanks = folder
  try {
    if (named === undefined) accessSync(tmpdir(), constants.W_OK)
  } catch {
    // Continue, because the job can run without records.
    forRanks = ''
  }
  /** The folder to name in the failure report: a temporary folder that holds records. */
  const kept = (): string | undefined =>
    named === undefined && readAll(folder).some(({ entries }) => entries.length > 0)
      ? folder
      : undefined
  return {
    folder,
    /** The folder; empty if there is no place for temporary files. */
    forRanks,
    kept,
    /** Removes a temporary folder, unless the job has failed and the folder holds records. */
    close: (hasFailed: boolean): void => {
      if (named !== undefined) return
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
