import {
  anyOf,
  isCount,
  isFlag,
  isNumber,
  isText,
  listOf,
  objectOf,
  oneOf,
  optional,
  parseJson,
} from '@tsrun/core'
import type {
  CheckpointReport,
  ControlMessage,
  ErrorReport,
  ExitReport,
  ResourceUsage,
  StackReport,
  TimedOutWait,
} from '../rank/control-message.ts'

const isWait = objectOf<TimedOutWait>({
  operation: isText,
  label: optional(isText),
  group: optional(isText),
  milliseconds: isNumber,
  peers: listOf(isCount),
})

export const isErrorReport = objectOf<ErrorReport>({
  kind: oneOf('error'),
  at: isNumber,
  name: isText,
  message: isText,
  text: isText,
  short: optional(objectOf<NonNullable<ErrorReport['short']>>({ text: isText, hidden: isCount })),
  code: optional(isText),
  peers: listOf(isCount),
  wait: optional(isWait),
  consequence: isFlag,
  silent: isFlag,
})

export const isResourceUsage = objectOf<ResourceUsage>({
  cpuSeconds: isNumber,
  peakBytes: isNumber,
})

const isControlMessage = anyOf<ControlMessage>(
  isErrorReport,
  objectOf<ExitReport>({
    kind: oneOf('exit'),
    usage: isResourceUsage,
    exitedAt: optional(isText),
  }),
  objectOf<CheckpointReport>({ kind: oneOf('checkpoint'), step: isNumber, path: isText }),
  objectOf<StackReport>({
    kind: oneOf('stack'),
    id: isCount,
    stack: optional(isText),
    resources: optional(listOf(isText)),
  }),
)

/** The message of a line; undefined for anything else that a program has written to the descriptor. */
export function parseControlMessage(line: string): ControlMessage | undefined {
  return parseJson(line, isControlMessage)
}
