import type { RankActivity } from '@tsrun/distributed/record'
import type { AttemptFacts, RankRates } from '../host.ts'
import type { TimeShares } from '../trace/shares.ts'
import type { TraceSummary } from '../trace/summary.ts'

/** A rank on the page. Unknown values are undefined. */
export interface RankView extends Partial<RankRates> {
  readonly rank: number
  readonly state: RankActivity
  readonly operation?: string | undefined
  /** The ranks whose messages this rank waits for. */
  readonly waitsFor: readonly number[]
  /** Seconds in this state. */
  readonly seconds: number
  readonly step?: number | undefined
  /** The step at which training ends. */
  readonly of?: number | undefined
  readonly loss?: number | undefined
}

export type JobPhase = 'running' | 'succeeded' | 'failed' | 'recorded'

/** A job on the page with its ranks on this host, or all ranks of a recorded job. */
export interface JobView extends AttemptFacts {
  readonly script: string
  /** The script as it was named, and its arguments; undefined for a recorded job. */
  readonly command?: string
  /** Seconds since the job was started, or its duration; undefined for a recorded job. */
  readonly seconds?: number
  /** Undefined for a recorded job. */
  readonly host?: string
  readonly phase: JobPhase
  readonly ranks: readonly RankView[]
}

/** A line that a rank has printed. */
export interface LogLine {
  readonly rank: number
  readonly stream: 'stdout' | 'stderr'
  readonly text: string
}

/** Means over the ranks of this host. */
export interface ChartPoint {
  /** Seconds since the dashboard was opened, or the step number of a recorded job. */
  readonly at: number
  readonly loss?: number | undefined
  readonly stepsPerSecond?: number | undefined
  readonly cpu?: number | undefined
}

/** The kinds of bars in the chart of a step. */
export const barKinds = [
  'F',
  'B',
  'I',
  'W',
  'optimizer',
  'communication',
  'waiting',
  'input',
  'overhead',
] as const
export type BarKind = (typeof barKinds)[number]

/** An index into `barKinds`, start and end in milliseconds of the step, and the micro-batch or -1. */
export type Bar = readonly [kind: number, start: number, end: number, microbatch: number]

/** A collective in a step, in milliseconds from the beginning of the step. */
export interface CollectiveView {
  readonly name: string
  readonly bytes: number
  /** Time at which this rank started the collective, because its values were ready. */
  readonly ready: number
  /** Time at which all ranks of the collective on this host had arrived. */
  readonly arrived: number
  readonly end: number
}

/** A rank in a step. */
export interface StepRankView {
  readonly rank: number
  readonly milliseconds: number
  readonly shares: TimeShares
  readonly bars: readonly Bar[]
  /** The same computations in the ideal pipeline schedule; undefined without a pipeline. */
  readonly ideal: readonly Bar[] | undefined
  readonly collectives: readonly CollectiveView[]
}

/** The last step that all ranks of this host have completed. */
export interface StepView {
  readonly step: number
  /** Time from the start of the first rank to the end of the last rank. */
  readonly milliseconds: number
  /** Length of the ideal pipeline schedule; undefined without a pipeline. */
  readonly idealMilliseconds: number | undefined
  readonly ranks: readonly StepRankView[]
}

/** Bytes that ranks of this host have sent to each rank of the world. */
export interface LinksView {
  readonly ranks: readonly number[]
  /** Bytes, indexed by the position of the sender in `ranks`, then by the rank of the receiver. */
  readonly sent: readonly (readonly number[])[]
}

/** The trace of a recorded job. */
export interface RecordedView {
  /** The numbers of the steps that the traces of all ranks contain, in order. */
  readonly steps: readonly number[]
  readonly summary: TraceSummary
  /** Sentences that describe the summary, without the table of ranks. */
  readonly sentences: readonly string[]
}

/** The data source of a page. */
export interface PageSource {
  /** Whether the data changes. */
  readonly isLive: boolean
  /**
   * The changes since the last call.
   *
   * @param isWatched - whether a page is open
   */
  update(isWatched: boolean): DashboardUpdate
  /** All kept data, including the changes in this update. */
  snapshot(update: DashboardUpdate): DashboardUpdate
  /** Returns a recorded step; undefined for an unknown number. */
  step?(number: number): StepView | undefined
}

/** A server-sent event: the changes since the last event, or a snapshot of all data. */
export interface DashboardUpdate {
  /** Seconds since the dashboard was opened. */
  readonly at: number
  readonly job: JobView
  readonly points: readonly ChartPoint[]
  readonly lines: readonly LogLine[]
  /** Present about once per second. */
  readonly links?: LinksView | undefined
  /** Present if the step has changed. */
  readonly step?: StepView | undefined
  /** Number of lines dropped because there were too many. */
  readonly dropped: number
  readonly report?: string | undefined
  /** Present for a recorded job only. */
  readonly recorded?: RecordedView | undefined
}
