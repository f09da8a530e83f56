import {
  anything,
  choice,
  count,
  host,
  integer,
  list,
  number,
  object,
  parseJson,
  record,
  shown,
  text,
  type Of,
} from '@tsrun/core'

/** Format and version in the header of a dump. */
export const FLIGHT_FORMAT = 'tsrun-flight'
/** Version of the format of a dump. */
export const FLIGHT_VERSION = 1

/**
 * The state of an operation at the time of the dump. `refused` means that its group had already
 * failed, so the other ranks did not take part.
 */
export const flightStates = ['running', 'done', 'failed', 'refused'] as const
/** The state of an operation: running, done, failed or refused. */
export type FlightState = (typeof flightStates)[number]

/** Largest plausible number of ranks and groups; a larger one means a damaged dump. */
const MOST = 1 << 20

const flightGroup = object({
  id: integer,
  name: text,
  /** The world rank of each member. */
  ranks: list(count(), MOST),
})

/** The rank and job of a dump, and why it was written. */
const flightHeader = object({
  format: choice(FLIGHT_FORMAT),
  version: choice(FLIGHT_VERSION),
  rank: count({ to: MOST - 1 }),
  worldSize: count({ to: MOST }),
  pid: count(),
  host: text,
  runId: text,
  restartCount: count(),
  reason: text,
  /** Date and time of the dump, in ISO 8601. */
  time: text,
  /**
   * The time of the dump in milliseconds of the host's monotonic clock, like the times of the
   * entries.
   */
  at: number,
  groups: list(flightGroup, MOST),
})

const flightEntry = object({
  /** The position among the operations of the rank, from 1. */
  number,
  /** The id of the group. */
  group: integer,
  /** Position among the collectives of the group; for a message, among the rank's messages in the group. */
  sequence: number,
  /** Name of the operation: `allReduce`, `send`, ... */
  name: text,
  /** The parameters that ranks must agree on, such as `allReduce(sum) float32[4096] by ring`. */
  operation: text,
  /** The label of the call. */
  label: text.optional(),
  /** The line of the script that called the operation; recorded under TSRUN_DEBUG=detail. */
  site: text.optional(),
  /** The world rank of the other end of a message; absent for a receive from any rank. */
  peer: count().optional(),
  /** The tag of a message. */
  tag: number.optional(),
  bytes: number,
  /** Milliseconds of the host's monotonic clock; 0 for an event that has not happened yet. */
  posted: number,
  started: number,
  completed: number,
  state: choice(...flightStates),
  /** The code of the error with which the operation ended. */
  error: text.optional(),
  /** The world ranks that the operation waits for, or waited for when it failed. */
  waitsFor: list(count(), MOST).optional(),
})

/** The contents of the flight recorder of one rank. The entries are in the order of the calls. */
export const flightDump = object({ header: flightHeader, entries: list(flightEntry, MOST) })

/** A group in the header of a dump: its id, its name and its world ranks. */
export type FlightGroup = Of<typeof flightGroup>
/** The rank and job of a dump, and why it was written. */
export type FlightHeader = Of<typeof flightHeader>
/** An operation in a dump. */
export type FlightEntry = Of<typeof flightEntry>
/** The contents of the flight recorder of one rank. */
export type FlightDump = Of<typeof flightDump>

/**
 * Writes `<directory>/rank-<rank>.jsonl`: the header, then a line for each operation. It replaces
 * an earlier dump of this rank atomically.
 *
 * @returns the path of the file
 */
export function writeFlightDump(directory: string, { header, entries }: FlightDump): string {
  const lines = [header, ...entries].map((line) => `${JSON.stringify(line)}\n`)
  return host.writeOwnFile(directory, `rank-${header.rank}.jsonl`, lines.join(''))
}

/**
 * Parses a dump.
 * @throws Error if the text is not a dump, or has another version
 */
export function parseFlightDump(lines: string): FlightDump {
  const [first = '', ...rest] = lines.split('\n').filter((line) => line !== '')
  const header = parseJson(first, record(anything()))
  const { format, version } = header ?? {}
  if (format !== FLIGHT_FORMAT) throw new Error('not a dump of a flight recorder')
  if (version !== FLIGHT_VERSION) {
    throw new Error(
      `a dump of version ${shown(version)}, while this tsrun reads version ${FLIGHT_VERSION}`,
    )
  }
  if (!flightHeader.is(header)) throw new Error('the header is damaged')
  const entries = rest.map((line, i) => {
    const entry = parseJson(line, flightEntry)
    if (entry === undefined) throw new Error(`line ${i + 2} is damaged`)
    return entry
  })
  return { header, entries }
}

/** The end of a rank of an in-process world. Times are milliseconds of `monotonicNow`. */
export interface RankEnd {
  readonly rank: number
  readonly at: number
  /** The value that the rank's program threw; undefined if it returned. */
  readonly error?: unknown
  /** Whether the fault `lose` stopped the rank. */
  readonly isLost: boolean
}

/** An in-process world in which a rank has failed. */
export interface FailedWorld {
  /** Milliseconds of `monotonicNow`. */
  readonly startedAt: number
  /** The end of each rank, in rank order. */
  readonly ends: readonly RankEnd[]
  /** The flight record of each rank, in rank order. */
  readonly records: readonly FlightDump[]
}
