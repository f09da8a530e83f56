import type { RankActivity } from '@tsrun/distributed/record'
import type { TimeShares } from '../trace/shares.ts'
import type { TraceSummary } from '../trace/summary.ts'

/** What the page shows of a rank. What is not known is missing. */
export interface RankView {
  readonly rank: number
  readonly pid: number
  readonly state: RankActivity
  /** The part of its time in no operation in which it computed, 0 to 1. */
  readonly computing?: number | undefined
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

export type JobPhase = 'running' | 'succeeded' | 'failed' | 'recorded'

/** What the page shows of a job, and of its ranks on this host; of a recorded one, of all. */
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
  /** Seconds since the dashboard was opened; of a recorded job, the number of the step. */
  readonly at: number
  readonly loss?: number | undefined
  readonly stepsPerSecond?: number | undefined
  readonly cpu?: number | undefined
}

/** What a bar of a step shows. */
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

/** An index of `barKinds`, start and end in milliseconds of the step, and the micro-batch or -1. */
export type Bar = readonly [kind: number, start: number, end: number, microbatch: number]

/** A collective of a step, in milliseconds from the beginning of the step. */
export interface CollectiveView {
  readonly name: string
  readonly bytes: number
  /** When it was started: its values were ready. */
  readonly ready: number
  /** When all its ranks of this host were there. */
  readonly arrived: number
  readonly end: number
}

/** A rank in a step. */
export interface StepRankView {
  readonly rank: number
  readonly milliseconds: number
  readonly shares: TimeShares
  readonly bars: readonly Bar[]
  /** The same computations in the ideal schedule, where there is a pipeline. */
  readonly ideal: readonly Bar[] | undefined
  readonly collectives: readonly CollectiveView[]
}

/** The last step that all ranks of this host have ended. */
export interface StepView {
  readonly step: number
  /** From the begin of the first rank to the end of the last one. */
  readonly milliseconds: number
  /** Of the ideal schedule, where there is a pipeline. */
  readonly idealMilliseconds: number | undefined
  readonly ranks: readonly StepRankView[]
}

/** The bytes that ranks of this host have sent to each rank of the world. */
export interface LinksView {
  readonly ranks: readonly number[]
  /** By the position in `ranks`, and by rank of the world. */
  readonly sent: readonly (readonly number[])[]
}

/** What a trace has of a job. */
export interface RecordedView {
  /** How many steps all ranks have. */
  readonly steps: number
  readonly summary: TraceSummary
  /** What it says beside the table of ranks. */
  readonly sentences: readonly string[]
}

/** A step of a recorded job, and its position among the others. */
export interface RecordedStepView {
  readonly index: number
  readonly view: StepView
}

/** What a page shows. */
export interface PageSource {
  /** Whether that changes. */
  readonly isLive: boolean
  /**
   * The changes since the last call.
   *
   * @param isWatched - whether a page is open
   */
  update(isWatched: boolean): DashboardUpdate
  /** Everything that is kept, as of this update. */
  snapshot(update: DashboardUpdate): DashboardUpdate
  /**
   * One of the recorded steps.
   *
   * @param place - its position, or its number: if there is none, the next one
   */
  step?(place: {
    readonly index?: number | undefined
    readonly number?: number | undefined
  }): RecordedStepView | undefined
}

/** One event of the server: the changes since the last one, or, as a snapshot, everything that is kept. */
export interface DashboardUpdate {
  /** Seconds since the dashboard was opened. */
  readonly at: number
  readonly job: JobView
  readonly points: readonly ChartPoint[]
  readonly lines: readonly LogLine[]
  /** About once in a second. */
  readonly links?: LinksView | undefined
  /** If there is a new one. */
  readonly step?: StepView | undefined
  /** The number of lines that were left out because there were too many. */
  readonly dropped: number
  /** The report of a failure. */
  readonly report?: string | undefined
  /** Of a recorded job. */
  readonly recorded?: RecordedView | undefined
}
