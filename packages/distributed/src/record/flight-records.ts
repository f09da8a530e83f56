import {
  host,
  isCount,
  isInteger,
  isNumber,
  isObject,
  isText,
  listOf,
  objectOf,
  oneOf,
  optional,
  parseJson,
  shown,
} from '@tsrun/core'

/** The first word in the header of a dump, and the version of the format. */
export const FLIGHT_FORMAT = 'tsrun-flight'
export const FLIGHT_VERSION = 1

/**
 * The state when it was dumped. `refused`: its group had failed before, so the other ranks did not take
 * part in it.
 */
export const flightStates = ['running', 'done', 'failed', 'refused'] as const
export type FlightState = (typeof flightStates)[number]

export interface FlightGroup {
  readonly id: number
  readonly name: string
  /** The world rank of each member. */
  readonly ranks: readonly number[]
}

/** The rank and job of a dump, and why it was written. */
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
  /** The date and time, in ISO 8601. */
  readonly time: string
  /** The same moment in milliseconds of the host's monotonic clock, like the times of the entries. */
  readonly at: number
  readonly groups: readonly FlightGroup[]
}

/** One operation that a rank has called. */
export interface FlightEntry {
  /** The position among the operations of the rank, from 1. */
  readonly number: number
  /** The id of the group. */
  readonly group: number
  /** The position among the collectives of the group; for a message, among the rank's messages in the group. */
  readonly sequence: number
  /** `allReduce`, `send`, ... */
  readonly name: string
  /** The operation with all that the ranks must agree on: `allReduce(sum) float32[4096] by ring`. */
  readonly operation: string
  /** The name that the caller has given it. */
  readonly label?: string
  /** Where it was called; recorded under TSRUN_DEBUG=detail. */
  readonly site?: string
  /** The world rank of the other end of a message; absent for a receive from any rank. */
  readonly peer?: number
  /** The tag of a message. */
  readonly tag?: number
  readonly bytes: number
  /** Milliseconds of the host's monotonic clock; 0: it has not happened yet. */
  readonly posted: number
  readonly started: number
  readonly completed: number
  readonly state: FlightState
  /** The code of the error that ended it. */
  readonly error?: string
  /** The world ranks that it waits for, or waited for when it failed. */
  readonly waitsFor?: readonly number[]
}

/** The contents of the flight recorder of one rank. */
export interface FlightDump {
  readonly header: FlightHeader
  /** In the order of the calls. */
  readonly entries: readonly FlightEntry[]
}

/**
 * Writes `<directory>/rank-<rank>.jsonl`: the header, then a line for each operation. It replaces an earlier
 * dump of this rank; readers see either the whole old one or the whole new one.
 *
 * @returns the path of the file
 */
export function writeFlightDump(directory: string, { header, entries }: FlightDump): string {
  const lines = [header, ...entries].map((line) => `${JSON.stringify(line)}\n`)
  return host.writeOwnFile(directory, `rank-${header.rank}.jsonl`, lines.join(''))
}

/** @throws Error when it is not a dump, or one of another version */
export function parseFlightDump(text: string): FlightDump {
  const [first = '', ...rest] = text.split('\n').filter((line) => line !== '')
  const header = parseJson(first, isObject)
  const { format, version } = header ?? {}
  if (format !== FLIGHT_FORMAT) throw new Error('not a dump of a flight recorder')
  if (version !== FLIGHT_VERSION) {
    throw new Error(
      `a dump of version ${shown(version)}, while this tsrun reads version ${FLIGHT_VERSION}`,
    )
  }
  if (!isHeader(header)) throw new Error('the header is damaged')
  const entries = rest.map((line, i) => {
    const entry = parseJson(line, isEntry)
    if (entry === undefined) throw new Error(`line ${i + 2} is damaged`)
    return entry
  })
  return { header, entries }
}

/** Ranks and groups beyond which a dump is damaged. */
const MOST = 1 << 20

const isGroup = objectOf<FlightGroup>({
  id: isInteger,
  name: isText,
  ranks: listOf(isCount, MOST),
})

const isHeader = objectOf<FlightHeader>({
  format: oneOf(FLIGHT_FORMAT),
  version: oneOf(FLIGHT_VERSION),
  rank: (value): value is number => isCount(value) && value < MOST,
  worldSize: (value): value is number => isCount(value) && value <= MOST,
  pid: isCount,
  host: isText,
  runId: isText,
  restartCount: isCount,
  reason: isText,
  time: isText,
  at: isNumber,
  groups: listOf(isGroup, MOST),
})

const isEntry = objectOf<FlightEntry>({
  number: isNumber,
  group: isInteger,
  sequence: isNumber,
  name: isText,
  operation: isText,
  label: optional(isText),
  site: optional(isText),
  peer: optional(isCount),
  tag: optional(isNumber),
  bytes: isNumber,
  posted: isNumber,
  started: isNumber,
  completed: isNumber,
  state: oneOf(...flightStates),
  error: optional(isText),
  waitsFor: optional(listOf(isCount, MOST)),
})

/** Whether a value, as of another host, is a dump. */
export const isFlightDump = objectOf<FlightDump>({
  header: isHeader,
  entries: listOf(isEntry, MOST),
})
