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
