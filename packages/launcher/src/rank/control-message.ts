/** What the preload of a rank writes to the control pipe: one JSON object a line. */
export type ControlMessage = ErrorReport | ExitReport

/** An uncaught error, written before the rank dies of it. */
export interface ErrorReport {
  readonly kind: 'error'
  /** Milliseconds of the host's monotonic clock: reports of ranks of one host can be compared. */
  readonly at: number
  readonly name: string
  readonly message: string
  /** The error as Node prints it: stack, properties, causes. */
  readonly text: string
  /** Code of the error, or of the first of its causes that is one of ours. */
  readonly code?: string
  /** The rank that this error is about (the lost peer, the one that left). */
  readonly peers: readonly number[]
  /** The error only follows from another rank's failure. */
  readonly consequence: boolean
  /** The rank prints it as one line; the whole is for its log file. */
  readonly brief: boolean
}

/** The rank ends by itself. */
export interface ExitReport {
  readonly kind: 'exit'
  readonly usage: ResourceUsage
  /** Where process.exit() was called, if it was, with a code other than 0. */
  readonly exitedAt?: string
}

export interface ResourceUsage {
  /** Seconds of CPU time of all threads, user and system. */
  readonly cpuSeconds: number
  /** Largest resident set in bytes. */
  readonly peakBytes: number
}

/** Number of the descriptor that a rank finds its control pipe at. */
export const CONTROL_FD = 3
