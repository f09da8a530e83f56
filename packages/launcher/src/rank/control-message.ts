/** What a rank writes to the control pipe: one JSON object per line. */
export type ControlMessage = ErrorReport | ExitReport | StackReport | CheckpointReport

/** An uncaught error, written before the rank dies of it. */
export interface ErrorReport {
  readonly kind: 'error'
  /** Milliseconds of the monotonic clock, which all ranks of the host share. */
  readonly at: number
  readonly name: string
  readonly message: string
  /** The error as Node prints it: stack, properties, causes. */
  readonly text: string
  /** The same without the frames of libraries; absent where there are none, or only such. */
  readonly short?: { readonly text: string; readonly hidden: number }
  /** The code of the error, or of the first of its causes that is an error of this library. */
  readonly code?: string
  /** The ranks that this error is about: the lost peer, or the one that has left. */
  readonly peers: readonly number[]
  /** The operation that timed out, if this error is a time-out. */
  readonly wait?: TimedOutWait
  /** The error only follows from another rank's failure. */
  readonly consequence: boolean
  /** The rank prints nothing of it: the report shows it, and its log file gets the whole text. */
  readonly silent: boolean
}

/** A wait for other ranks that has timed out. */
export interface TimedOutWait {
  /** `allReduce(sum) float32[4] by ring #17`, or `initProcessGroup`. */
  readonly operation: string
  /** The name that the caller gave the operation. */
  readonly label?: string
  /** Undefined: before the rank has joined. */
  readonly group?: string
  readonly milliseconds: number
  /** The ranks that it waited for. */
  readonly peers: readonly number[]
}

/** The rank ends by itself. */
export interface ExitReport {
  readonly kind: 'exit'
  readonly usage: ResourceUsage
  /** Where process.exit() was called, if it was, with a code other than 0. */
  readonly exitedAt?: string
}

/** A checkpoint is complete, on the disk and under its name. */
export interface CheckpointReport {
  readonly kind: 'checkpoint'
  readonly step: number
  readonly path: string
}

/** The answer of a rank to a line with the number of the question. */
export interface StackReport {
  readonly kind: 'stack'
  readonly id: number
  /** Of its main thread, as an Error has it; undefined: the thread does not answer. */
  readonly stack?: string
  /** What its event loop waits for, as `process.getActiveResourcesInfo()` names it. */
  readonly resources?: readonly string[]
}

export interface ResourceUsage {
  /** The CPU time of all threads in seconds, user and system. */
  readonly cpuSeconds: number
  /** The largest resident set in bytes. */
  readonly peakBytes: number
}

/** What the launcher writes to the control pipe to bring a fault over a rank (`--chaos`). */
export interface FaultOrder {
  readonly kind: string
  /** Of `exit`. */
  readonly code: number
  /** Of `busy` and `delay`. */
  readonly forSeconds: number
  /** Of `delay`. */
  readonly milliseconds: number
  /** Of `clock`. */
  readonly bySeconds: number
  /** Of `descriptors`. */
  readonly limit: number
  /** Of `address-space`. */
  readonly mebibytes: number
}

/** The global symbol under which the watching thread finds what brings a fault over the process. */
export const INJECT = 'tsrun.inject'

/** The file descriptor of the control pipe in a rank. */
export const CONTROL_FD = 3
