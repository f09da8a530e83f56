import type { RankState } from '../status-slot.ts'

/** What the page shows of a rank. What is not known is missing. */
export interface RankView {
  readonly rank: number
  readonly pid: number
  readonly state: RankState | 'ended'
  /** The current operation, or the last one. */
  readonly operation?: string | undefined
  /** The ranks for whose messages it waits. */
  readonly waitsFor: readonly number[]
  /** The time in this state. */
  readonly seconds: number
  readonly step?: number | undefined
  readonly loss?: number | undefined
  readonly stepsPerSecond?: number | undefined
  /** The cores in use: 1 for one that is always busy. */
  readonly cpu?: number | undefined
  /** Bytes. */
  readonly memory?: number | undefined
  /** Percent. */
  readonly gpu?: number | undefined
  /** Bytes. */
  readonly gpuMemory?: number | undefined
}

export type JobPhase = 'running' | 'succeeded' | 'failed'

/** What the page shows of a job, and of its ranks on this host. */
export interface JobView {
  readonly runId: string
  readonly script: string
  readonly host: string
  readonly worldSize: number
  readonly restartCount: number
  readonly phase: JobPhase
  readonly ranks: readonly RankView[]
}

export interface LogLine {
  readonly rank: number
  readonly stream: 'stdout' | 'stderr'
  readonly text: string
}

/** Means over the ranks of this host. */
export interface ChartPoint {
  /** Seconds since the dashboard was opened. */
  readonly at: number
  readonly loss?: number | undefined
  readonly stepsPerSecond?: number | undefined
  readonly cpu?: number | undefined
}

/** One event of the server: the changes since the last one, or, as a snapshot, everything that is kept. */
export interface DashboardUpdate {
  /** Seconds since the dashboard was opened. */
  readonly at: number
  readonly job: JobView
  readonly points: readonly ChartPoint[]
  readonly lines: readonly LogLine[]
  /** The number of lines that were left out because there were too many. */
  readonly dropped: number
  /** The report of a failure. */
  readonly report?: string | undefined
}
