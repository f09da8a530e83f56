import type { RankStatus } from '@tsrun/distributed/record'

/** An attempt of a job. */
export interface AttemptFacts {
  readonly runId: string
  readonly worldSize: number
  readonly restartCount: number
}

/** What a rank uses per second, and in all. Undefined: not measured. */
export interface RankRates {
  /** The part of its time in no operation in which it computed, 0 to 1. */
  readonly computing: number | undefined
  /** Cores. */
  readonly cpu: number | undefined
  readonly stepsPerSecond: number | undefined
  /** Bytes that are resident. */
  readonly memory: number | undefined
  /** The part of the time in which its GPU computed, in percent. */
  readonly gpu: number | undefined
  /** Bytes of its GPU that are in use. */
  readonly gpuMemory: number | undefined
}

/** What the launcher does for those who show its job. */
export interface ObserveHost {
  /** Aborted when the job has to stop. */
  readonly stop: AbortSignal
  /** Tells the user. */
  say(event: string, text: string, facts?: Readonly<Record<string, unknown>>): void
  /** Measures the ranks, by process ID, since the last call. */
  ratesOf(ranks: readonly RankStatus[]): ReadonlyMap<number, RankRates>
  /** The CPU time of a process so far; undefined if it has ended. */
  cpuSeconds(pid: number): number | undefined
  /** The memory of a process; undefined if it has ended. */
  residentBytes(pid: number): number | undefined
}
