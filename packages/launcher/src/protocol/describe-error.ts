import { distanceFromCause, tsrErrorIn, type TsrError } from '@tsrun/core/errors'
import type { ErrorReport, TimedOutWait } from './control.ts'

const LONGEST_TEXT = 32 * 1024
const LONGEST_MESSAGE = 4 * 1024
const LONGEST_NAME = 200

/** The description of a thrown value in a report. */
export type ErrorDescription = Omit<ErrorReport, 'kind' | 'at' | 'silent'>

/**
 * Describes a thrown value. Throws if reading its properties throws.
 *
 * @param print - returns the text of the value in the report
 */
export function describeThrown(
  thrown: unknown,
  print: (thrown: unknown) => string,
): Omit<ErrorDescription, 'short'> {
  const own = firstOf(tsrErrorIn(thrown))
  const { name, message, code } = Object(thrown) as Record<string, unknown>
  const facts = own?.facts
  const distance = distanceFromCause(thrown)
  const wait = distance === 2 ? waitOf(own!) : undefined
  const known = own?.code ?? (typeof code === 'string' ? code : undefined)
  return {
    name: cut(typeof name === 'string' ? name : typeof thrown, LONGEST_NAME),
    message: cut(typeof message === 'string' ? message : String(thrown), LONGEST_MESSAGE),
    text: cut(print(thrown), LONGEST_TEXT),
    peers: ranksIn(facts?.['peer']),
    distance,
    wait,
    code: known && cut(known, LONGEST_NAME),
  }
}

/** If an operation was refused because its group had failed, returns the error that failed the group. */
function firstOf(error: TsrError | undefined): TsrError | undefined {
  const isRefused = error?.code === 'ERR_TSR_GROUP_FAILED'
  return isRefused ? (tsrErrorIn(error.cause) ?? error) : error
}

/** Adds the cause of an error to its text, unless the error's message contains the cause's message. */
export function withCause(
  text: string,
  { message, cause }: TsrError,
  print: (thrown: unknown) => string,
): string {
  if (cause === undefined) return text
  const { message: root } = Object(cause) as Record<string, unknown>
  const isRepeated = typeof root === 'string' && root !== '' && message.includes(root)
  return isRepeated ? text : `${text}\n[cause]: ${print(cause)}`
}

/** Keeps the beginning and the end of a long text, because an error's text ends with its stack. */
function cut(text: string, limit: number): string {
  if (text.length <= limit) return text
  const tail = Math.floor(limit / 4)
  const left = text.length - limit
  return `${text.slice(0, limit - tail)}\n… ${left} characters left out …\n${text.slice(-tail)}`
}

/** The facts of a time-out name the ranks that it waited for. */
function waitOf({ code, facts }: TsrError): TimedOutWait {
  const { peers, missing, label, group } = facts
  const first = code === 'ERR_TSR_TIMEOUT' ? 'initProcessGroup' : 'monitoredBarrier'
  return {
    operation: String(facts['operation'] ?? first),
    label: label === undefined ? undefined : String(label),
    group: group === undefined ? undefined : String(group),
    milliseconds: Number(facts['milliseconds']),
    peers: ranksIn(peers ?? missing),
  }
}

function ranksIn(text: string | number | undefined): number[] {
  return [...String(text ?? '').matchAll(/\d+/g)].map(([digits]) => Number(digits))
}
