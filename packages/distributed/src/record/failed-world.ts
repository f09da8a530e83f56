import type { FlightDump } from './flight-records.ts'

/** How a rank of a world within one thread ended. Times are milliseconds of `monotonicNow`. */
export interface RankEnd {
  readonly rank: number
  readonly at: number
  /** What the program of the rank has thrown; undefined if it returned. */
  readonly error?: unknown
  /** Whether the fault `lose` stopped the rank. */
  readonly isLost: boolean
}

/** A world within one thread in which a rank has failed. */
export interface FailedWorld {
  /** Milliseconds of `monotonicNow`. */
  readonly startedAt: number
  /** Of each rank, in rank order. */
  readonly ends: readonly RankEnd[]
  /** The flight record of each rank, in rank order. */
  readonly records: readonly FlightDump[]
}
