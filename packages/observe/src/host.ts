import type { RankStatus } from '@tsrun/distributed/record'

/** An attempt of a job. */
export interface AttemptFacts {
  readonly runId: string
  readonly worldSize: number
  readonly restartCount: number
}

/** The resource usage of a rank. Undefined values are not measured. */
export interface RankRates {
  /** Fraction (0 to 1) of the time outside operations during which the rank computed. */
  readonly computing: number | undefined
  /** Cores in use. */
  readonly cpu: number | undefined
  readonly stepsPerSecond: number | undefined
  /** Resident bytes. */
  readonly memory: number | undefined
  /** GPU utilization in percent. */
  readonly gpu: number | undefined
  /** Bytes in use on its GPU. */
  readonly gpuMemory: number | undefined
}

/** The launcher's services for observers of its job. */
export interface ObserveHost {
  /** Aborts when the job must stop. */
  readonly stop: AbortSignal
  /** Prints a message to the user. */
  say(event: string, text: string, facts?: Readonly<Record<string, unknown>>): void
  /** Usage of the ranks since the last call, by process ID. */
  ratesOf(ranks: readonly RankStatus[]): ReadonlyMap<number, RankRates>
  /** CPU seconds of a process so far; undefined if it has ended. */
  cpuSeconds(pid: number): number | undefined
  /** Resident bytes of a process; undefined if it has ended. */
  residentBytes(pid: number): number | undefined
}
