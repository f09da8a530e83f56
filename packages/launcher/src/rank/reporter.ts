import { subscribe } from 'node:diagnostics_channel'
import { inspect } from 'node:util'
import { monotonicNow } from '@tsrun/core/clock'
import { distanceFromCause, isTsrError, tsrErrorIn, type TsrError } from '@tsrun/core/errors'
import { hideLibraryFrames } from './stack-frames.ts'
import { missingSourceHint } from './typescript/missing-source.ts'
import type { ErrorReport, TimedOutWait } from '../protocol/control.ts'
import type { ControlPipe } from './control-pipe.ts'

/**
 * Reports uncaught errors and the final usage of this process on the control pipe. The rank does not
 * print a reported error, because the launcher's report shows it once for all ranks that fail with it.
 * If the report cannot be sent, the rank prints the error.
 */
export function reportToLauncher(control: ControlPipe): void {
  let failed = false
  // The user's line may be below many library frames.
  Error.stackTraceLimit = Math.max(Error.stackTraceLimit, FRAMES)
  process.on('uncaughtExceptionMonitor', (error: unknown) => {
    failed = true
    const report = describeError(error)
    const silent = isFatal() && !isPlacedByNode(error)
    const isSent = control.send({ kind: 'error', at: monotonicNow(), ...report, silent })
    if (silent && isSent) process.once('uncaughtException', dieSilently)
  })
  // saveCheckpoint() of @tsrun/training publishes this on the rank that completes a checkpoint.
  subscribe('tsrun.checkpoint-saved', (message) => {
    const { step, path } = message as { readonly step: number; readonly path: string }
    control.send({ kind: 'checkpoint', step, path })
  })
  process.on('exit', (code) => {
    const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage()
    const usage = { cpuSeconds: (userCPUTime + systemCPUTime) / 1e6, peakBytes: maxRSS * 1024 }
    const exitedAt = code === 0 || failed ? undefined : callerOfExit()
    control.send({ kind: 'exit', usage, ...(exitedAt === undefined ? {} : { exitedAt }) })
  })
}

function isFatal(): boolean {
  const isCaught =
    process.listenerCount('uncaughtException') > 0 || process.hasUncaughtExceptionCaptureCallback()
  return !isCaught
}

/**
 * Whether only Node's crash message has the location: for a syntax error, and for a thrown value
 * without a stack.
 */
function isPlacedByNode(error: unknown): boolean {
  const { name, stack } = Object(error) as Record<string, unknown>
  return name === 'SyntaxError' || typeof stack !== 'string'
}

/** Exits like an uncaught error, but without a message. */
function dieSilently(): void {
  process.exit(Number(process.exitCode ?? 0) || 1)
}

/** The user's frames above process.exit(); undefined if it was not called. */
function callerOfExit(): string | undefined {
  const frames = (new Error().stack ?? '').split('\n').slice(1)
  const exit = frames.findIndex((frame) => /\bprocess\.(reallyExit|exit) /.test(frame))
  if (exit < 0) return undefined
  const own = frames.slice(exit + 1).filter((frame) => !/\(?node:/.test(frame))
  return own.length === 0 ? undefined : hideLibraryFrames(own.join('\n')).text
}

/** Stack frames that are recorded. V8's default is 10. */
const FRAMES = 50
const LONGEST_TEXT = 32 * 1024
const LONGEST_MESSAGE = 4 * 1024
const LONGEST_NAME = 200

type Description = Omit<ErrorReport, 'kind' | 'at' | 'silent'>

/** Describes a thrown value. Never throws. */
export function describeError(given: unknown): Description {
  try {
    const thrown = withoutPreamble(given)
    const own = tsrErrorIn(thrown)
    const { name, message, code } = Object(thrown) as Record<string, unknown>
    const text = cut(print(thrown) + missingSourceHint(thrown), LONGEST_TEXT)
    const short = hideLibraryFrames(text)
    const distance = distanceFromCause(thrown)
    const wait = distance === 2 ? waitOf(own!) : undefined
    const known = own?.code ?? (typeof code === 'string' ? code : undefined)
    return {
      name: cut(typeof name === 'string' ? name : typeof thrown, LONGEST_NAME),
      message: cut(typeof message === 'string' ? message : String(thrown), LONGEST_MESSAGE),
      text,
      ...(short.hidden === 0 ? {} : { short }),
      peers: own === undefined ? [] : peersOf(own),
      distance,
      ...(wait === undefined ? {} : { wait }),
      ...(known === undefined ? {} : { code: cut(known, LONGEST_NAME) }),
    }
  } catch {
    const text = `a value of type ${typeof given} that cannot be printed`
    return { name: 'unknown', message: text, text, peers: [], distance: 0 }
  }
}

/** Node describes the reason of a rejection that is no Error in a long sentence, with a stack of its own. */
function withoutPreamble(thrown: unknown): unknown {
  const { code, message } = Object(thrown) as Record<string, unknown>
  if (code !== 'ERR_UNHANDLED_REJECTION') return thrown
  const [, reason = ''] = /with the reason "([^]*)"\.$/.exec(String(message)) ?? []
  const text = `a promise was rejected with ${reason}, which is no Error and has no stack`
  return Object.assign(new Error(text), { [inspect.custom]: () => `Error: ${text}` })
}

/** Keeps the beginning and the end of a long text, because an error's text ends with its stack. */
function cut(text: string, limit: number): string {
  if (text.length <= limit) return text
  const tail = Math.floor(limit / 4)
  const left = text.length - limit
  return `${text.slice(0, limit - tail)}\n… ${left} characters left out …\n${text.slice(-tail)}`
}

/** Prints like Node, but omits the facts of this library's errors, which are in the message. */
function print(thrown: unknown): string {
  if (!isTsrError(thrown) || thrown.stack === undefined) return inspect(thrown)
  const { stack, message, cause } = thrown
  if (cause === undefined) return stack
  // The message often contains the message of the cause.
  const { message: root } = Object(cause) as Record<string, unknown>
  const isRepeated = typeof root === 'string' && root !== '' && message.includes(root)
  return isRepeated ? stack : `${stack}\n[cause]: ${print(cause)}`
}

function peersOf({ facts }: TsrError): number[] {
  return ranksIn((facts as TsrError['facts'] | undefined)?.['peer'])
}

/** The facts of a time-out name the ranks that it waited for. */
function waitOf({ code, facts }: TsrError): TimedOutWait {
  const { peers, missing, label, group } = facts
  const first = code === 'ERR_TSR_TIMEOUT' ? 'initProcessGroup' : 'monitoredBarrier'
  return {
    operation: String(facts['operation'] ?? first),
    ...(label === undefined ? {} : { label: String(label) }),
    ...(group === undefined ? {} : { group: String(group) }),
    milliseconds: Number(facts['milliseconds']),
    peers: ranksIn(peers ?? missing),
  }
}

function ranksIn(text: string | number | bigint | undefined): number[] {
  return [...String(text ?? '').matchAll(/\d+/g)].map(([digits]) => Number(digits))
}
