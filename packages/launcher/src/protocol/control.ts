import {
  choice,
  count,
  either,
  flag,
  list,
  number,
  object,
  parseJson,
  text,
  type Of,
} from '@tsrun/core'

/** A wait for other ranks that timed out. */
const timedOutWait = object({
  /** For example `allReduce(sum) float32[4] by ring #17`, or `initProcessGroup`. */
  operation: text,
  /** The name that the caller gave the operation. */
  label: text.optional(),
  /** The name of the group; undefined before the rank has joined one. */
  group: text.optional(),
  milliseconds: number,
  peers: list(count()),
})

/** An uncaught error. The rank writes it before it dies. */
export const errorReport = object({
  kind: choice('error'),
  /** Milliseconds of the monotonic clock of the host. */
  at: number,
  name: text,
  message: text,
  /** The error as Node prints it: stack, properties, causes. */
  text,
  /** `text` without library frames, and the number of hidden frames; absent if none is hidden. */
  short: object({ text, hidden: count() }).optional(),
  /** The code of the error, or of its first cause that is a TsrError. */
  code: text.optional(),
  /** The ranks that the error names: peers that were lost or have left. */
  peers: list(count()),
  /** The wait that timed out; only for a time-out. */
  wait: timedOutWait.optional(),
  /** 0 for a probable root cause, up to 3 for a sure consequence; see `distanceFromCause`. */
  distance: count(),
  /** True if the rank does not print the error. The report shows it, and the log file has its text. */
  silent: flag,
})

export const resourceUsage = object({
  /** The CPU time of all threads in seconds, user and system. */
  cpuSeconds: number,
  /** The largest resident set in bytes. */
  peakBytes: number,
})

/** The rank exits by itself. */
const exitReport = object({
  kind: choice('exit'),
  usage: resourceUsage,
  /** The stack of a call of process.exit() with a code other than 0. */
  exitedAt: text.optional(),
})

/** A checkpoint is on the disk, complete and under its final name. */
const checkpointReport = object({ kind: choice('checkpoint'), step: number, path: text })

/** The answer of a rank to request `id` for its stack. */
const stackReport = object({
  kind: choice('stack'),
  id: count(),
  /** The stack of the main thread, as in `Error.stack`; undefined if the thread does not answer. */
  stack: text.optional(),
})

/** The messages that a rank writes to the control pipe: one JSON object per line. */
const controlMessage = either(errorReport, exitReport, checkpointReport, stackReport)

export type TimedOutWait = Of<typeof timedOutWait>
export type ErrorReport = Of<typeof errorReport>
export type ResourceUsage = Of<typeof resourceUsage>
export type ExitReport = Of<typeof exitReport>
export type CheckpointReport = Of<typeof checkpointReport>
export type StackReport = Of<typeof stackReport>
export type ControlMessage = Of<typeof controlMessage>

/** Parses a line; undefined if it is not a message, because a program may write to the descriptor, too. */
export function parseControlMessage(line: string): ControlMessage | undefined {
  return parseJson(line, controlMessage)
}

/** The message with which the launcher injects a fault into a rank (`--chaos`). */
export interface FaultOrder {
  readonly kind: string
  /** The exit code, for `exit`. */
  readonly code: number
  /** The duration, for `busy` and `delay`. */
  readonly forSeconds: number
  /** The delay of each message, for `delay`. */
  readonly milliseconds: number
  /** For `clock`: the seconds by which the fault moves the clock of a rank. */
  readonly bySeconds: number
}
