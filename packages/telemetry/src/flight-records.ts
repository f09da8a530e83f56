import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** The first word of a dump's header, and the version of what follows. */
export const FLIGHT_FORMAT = 'tsrun-flight'
export const FLIGHT_VERSION = 1

/**
 * `running` when it was dumped, `done`, `failed`, or `refused` because its group had failed before:
 * then the other ranks never met it.
 */
export const flightStates = ['running', 'done', 'failed', 'refused'] as const
export type FlightState = (typeof flightStates)[number]

export interface FlightGroup {
  readonly id: number
  readonly name: string
  /** World rank of each member. */
  readonly ranks: readonly number[]
}

/** Whose dump it is, and why it was written. */
export interface FlightHeader {
  readonly format: typeof FLIGHT_FORMAT
  readonly version: number
  readonly rank: number
  readonly worldSize: number
  readonly pid: number
  readonly host: string
  readonly runId: string
  readonly restartCount: number
  readonly reason: string
  /** Date and time, ISO 8601. */
  readonly time: string
  /** The same moment in milliseconds of the host's monotonic clock, as all times of the entries. */
  readonly at: number
  readonly groups: readonly FlightGroup[]
}

/** One operation that a rank has called. */
export interface FlightEntry {
  /** Position among the operations of the rank, from 1. */
  readonly number: number
  /** Group id. */
  readonly group: number
  /** Position among the collectives of the group; for messages, among the rank's own of the group. */
  readonly sequence: number
  /** `allReduce`, `send`, ... */
  readonly name: string
  /** With all that ranks must agree on: `allReduce(sum) float32[4096] by ring`. */
  readonly operation: string
  /** What the caller named it. */
  readonly label?: string
  /** Where it was called; recorded under TSRUN_DEBUG=detail. */
  readonly site?: string
  /** World rank of the other end of a message; absent for a receive from whoever sends. */
  readonly peer?: number
  /** Of a message. */
  readonly tag?: number
  readonly bytes: number
  /** Milliseconds of the host's monotonic clock; 0: not yet. */
  readonly posted: number
  readonly started: number
  readonly completed: number
  readonly state: FlightState
  /** Code of the error that ended it. */
  readonly error?: string
  /** World ranks that it waits for, or waited for when it failed. */
  readonly waitsFor?: readonly number[]
}

/** What the flight recorder of one rank held. */
export interface FlightDump {
  readonly header: FlightHeader
  /** In the order of the calls. */
  readonly entries: readonly FlightEntry[]
}

/**
 * Writes `<directory>/rank-<rank>.jsonl`: the header, then a line for each operation. It replaces
 * the dump that this rank has written before; readers see the one or the other, whole.
 *
 * @returns the path of the file
 */
export function writeFlightDump(directory: string, { header, entries }: FlightDump): string {
  mkdirSync(directory, { recursive: true })
  const path = join(directory, `rank-${header.rank}.jsonl`)
  const unfinished = `${path}.${header.pid}`
  const lines = [header, ...entries].map((line) => `${JSON.stringify(line)}\n`)
  writeFileSync(unfinished, lines.join(''))
  renameSync(unfinished, path)
  return path
}

export interface FlightFolder {
  /** In the order of ranks. */
  readonly dumps: readonly FlightDump[]
  /** Files that are no dump, and why: a sentence each. */
  readonly problems: readonly string[]
}

/** Reads the dumps of all ranks in a folder. Files that cannot be used are named, not thrown. */
export function readFlightFolder(directory: string): FlightFolder {
  const dumps: FlightDump[] = []
  const problems: string[] = []
  for (const name of readdirSync(directory)) {
    if (!/^rank-\d+\.jsonl$/.test(name)) continue
    try {
      dumps.push(parseFlightDump(readFileSync(join(directory, name), 'utf8')))
    } catch (error) {
      problems.push(`${join(directory, name)}: ${(error as Error).message}`)
    }
  }
  dumps.sort((a, b) => a.header.rank - b.header.rank)
  return { dumps, problems }
}

/** @throws Error when it is no dump, or one of another version */
function parseFlightDump(text: string): FlightDump {
  const [first = '', ...rest] = text.split('\n').filter((line) => line !== '')
  const header = JSON.parse(first) as Partial<FlightHeader> | null
  if (header?.format !== FLIGHT_FORMAT) throw new Error('no dump of a flight recorder')
  if (header.version !== FLIGHT_VERSION) {
    throw new Error(
      `a dump of version ${String(header.version)}; this is tsrun with ${FLIGHT_VERSION}`,
    )
  }
  if (!isHeader(header)) throw new Error('the header is damaged')
  const entries = rest.map((line, i) => {
    const entry = JSON.parse(line) as Partial<FlightEntry> | null
    if (!isEntry(entry)) throw new Error(`line ${i + 2} is damaged`)
    return entry
  })
  return { header, entries }
}

function isHeader(header: Partial<FlightHeader>): header is FlightHeader {
  const { rank, worldSize, groups } = header
  return (
    [rank, worldSize, header.at].every((value) => typeof value === 'number') &&
    [header.host, header.reason].every((value) => typeof value === 'string') &&
    Array.isArray(groups) &&
    groups.every(({ id, ranks }) => Number.isInteger(id) && Array.isArray(ranks))
  )
}

function isEntry(entry: Partial<FlightEntry> | null): entry is FlightEntry {
  if (entry === null || typeof entry !== 'object') return false
  const { number, group, sequence, posted, started, completed, state } = entry
  return (
    [number, group, sequence, posted, started, completed].every((n) => typeof n === 'number') &&
    typeof entry.operation === 'string' &&
    typeof entry.name === 'string' &&
    flightStates.some((known) => known === state)
  )
}
