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

/** A wait for other ranks that has timed out. */
const timedOutWait = object({
  /** `allReduce(sum) float32[4] by ring #17`, or `initProcessGroup`. */
  operation: text,
  /** The name that the caller gave the operation. */
  label: text.optional(),
  /** Undefined: before the rank has joined. */
  group: text.optional(),
  milliseconds: number,
  /** The ranks that it waited for. */
  peers: list(count()),
})

/** An uncaught error, written before the rank dies of it. */
export const errorReport = object({
  kind: choice('error'),
  /** Milliseconds of the monotonic clock, which all ranks of the host share. */
  at: number,
  name: text,
  message: text,
  /** The error as Node prints it: stack, properties, causes. */
  text,
  /** The same without the frames of libraries; absent where there are none, or only such. */
  short: object({ text, hidden: count() }).optional(),
  /** The code of the error, or of the first of its causes that is an error of this library. */
  code: text.optional(),
  /** The ranks that this error is about: the lost peer, or the one that has left. */
  peers: list(count()),
  /** The operation that timed out, if this error is a time-out. */
  wait: timedOutWait.optional(),
  /** The error only follows from another rank's failure. */
  consequence: flag,
  /** The rank prints nothing of it: the report shows it, and its log file gets the whole text. */
  silent: flag,
})

export const resourceUsage = object({
  /** The CPU time of all threads in seconds, user and system. */
  cpuSeconds: number,
  /** The largest resident set in bytes. */
  peakBytes: number,
})

/** The rank ends by itself. */
const exitReport = object({
  kind: choice('exit'),
  usage: resourceUsage,
  /** Where process.exit() was called, if it was, with a code other than 0. */
  exitedAt: text.optional(),
})

/** A checkpoint is complete, on the disk and under its name. */
const checkpointReport = object({ kind: choice('checkpoint'), step: number, path: text })

/** The answer of a rank to a line with the number of the question. */
const stackReport = object({
  kind: choice('stack'),
  id: count(),
  /** Of its main thread, as an Error has it; undefined: the thread does not answer. */
  stack: text.optional(),
  /** What its event loop waits for, as `process.getActiveResourcesInfo()` names it. */
  resources: list(text).optional(),
})

/** What a rank writes to the control pipe: one JSON object per line. */
const controlMessage = either(errorReport, exitReport, checkpointReport, stackReport)

export type TimedOutWait = Of<typeof timedOutWait>
export type ErrorReport = Of<typeof errorReport>
export type ResourceUsage = Of<typeof resourceUsage>
export type ExitReport = Of<typeof exitReport>
export type CheckpointReport = Of<typeof checkpointReport>
export type StackReport = Of<typeof stackReport>
export type ControlMessage = Of<typeof controlMessage>

/** The message of a line; undefined for anything else that a program has written to the descriptor. */
export function parseControlMessage(line: string): ControlMessage | undefined {
  return parseJson(line, controlMessage)
}

/** What the launcher writes to the control pipe to inject a fault into a rank (`--chaos`). */
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
