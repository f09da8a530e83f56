import { subscribe } from 'node:diagnostics_channel'
import { inspect } from 'node:util'
import { fileURLToPath } from 'node:url'
import { monotonicNow } from '@tsrun/core/clock'
import { isTsrError } from '@tsrun/core/errors'
import { tsxHint } from './typescript/tsx-hint.ts'
import { describeThrown, withCause, type ErrorDescription } from '../protocol/describe-error.ts'
import type { ControlPipe } from './control-pipe.ts'

/**
 * Reports uncaught errors and the final usage of this process on the control pipe. The rank does not
 * print a reported error, because the launcher's report shows it once for all ranks that fail with it.
 * If the report cannot be sent, the rank prints the error.
 */
export function reportToLauncher(control: ControlPipe): void {
  let failed = false
  // Record more frames, because the user's line may be below many library frames.
  Error.stackTraceLimit = Math.max(Error.stackTraceLimit, FRAMES)
  process.on(
    'uncaughtExceptionMonitor',
    (error: unknown, origin: NodeJS.UncaughtExceptionOrigin) => {
      failed = true
      const report = describeError(error)
      const silent = isFatal() && !isPlacedByNode(error, origin)
      const isSent = control.send({ kind: 'error', at: monotonicNow(), ...report, silent })
      if (silent && isSent) process.once('uncaughtException', dieSilently)
    },
  )
  // saveCheckpoint() of @tsrun/training publishes this on the rank that completes a checkpoint.
  subscribe('tsrun.checkpoint-saved', (message) => {
    const { step, path } = message as { readonly step: number; readonly path: string }
    control.send({ kind: 'checkpoint', step, path })
  })
  process.on('exit', (code) => {
    const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage()
    const usage = { cpuSeconds: (userCPUTime + systemCPUTime) / 1e6, peakBytes: maxRSS * 1024 }
    const exitedAt = code === 0 || failed ? undefined : callerOfExit()
    control.send({ kind: 'exit', usage, exitedAt })
  })
}

function isFatal(): boolean {
  const isCaught = process.hasUncaughtExceptionCaptureCallback()
  return !isCaught && process.listenerCount('uncaughtException') === 0
}

/**
 * True if only Node's crash message shows the location of the error: for a syntax error, or for a thrown
 * value without a stack. The reason of a rejected promise has no location if it has no stack.
 */
function isPlacedByNode(error: unknown, origin: NodeJS.UncaughtExceptionOrigin): boolean {
  const { name, stack } = Object(error) as Record<string, unknown>
  return typeof stack === 'string' ? name === 'SyntaxError' : origin === 'uncaughtException'
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

/** Describes a thrown value. Never throws. */
export function describeError(given: unknown): ErrorDescription {
  try {
    const thrown = withoutPreamble(given)
    const described = describeThrown(
      thrown,
      (error) => print(error) + tsxHint(error) + missingStackHint(error),
    )
    const short = hideLibraryFrames(described.text)
    return short.hidden === 0 ? described : { ...described, short }
  } catch {
    const text = `a value of type ${typeof given} that cannot be printed`
    return { name: 'unknown', message: text, text, peers: [], distance: 0 }
  }
}

/** If a promise is rejected with a value that is not an Error, shortens Node's long error message. */
function withoutPreamble(thrown: unknown): unknown {
  const { code, message } = Object(thrown) as Record<string, unknown>
  if (code !== 'ERR_UNHANDLED_REJECTION') return thrown
  const [, reason = ''] = /with the reason "([^]*)"\.$/.exec(String(message)) ?? []
  const text = `a promise was rejected with ${reason}, which is no Error and has no stack`
  return Object.assign(new Error(text), { [inspect.custom]: () => `Error: ${text}` })
}

function missingStackHint(thrown: unknown): string {
  if (typeof (Object(thrown) as { stack?: unknown }).stack === 'string') return ''
  return '\nThis value is no Error, so it has no stack. Throw an Error instead.'
}

/**
 * Prints like Node, but omits properties of this library's and of esbuild's errors, which repeat the
 * message.
 */
function print(thrown: unknown): string {
  const { stack, errors, warnings } = Object(thrown) as Record<string, unknown>
  if (typeof stack === 'string' && Array.isArray(errors) && Array.isArray(warnings)) return stack
  if (!isTsrError(thrown) || thrown.stack === undefined) return inspect(thrown)
  return withCause(thrown.stack, thrown, print)
}

/**
 * The folder of this library's packages, with a trailing slash; undefined if this file is not inside one, for
 * example in a user's bundle.
 */
const [, packages] = /^(.*\/)launcher\/(?:src|dist)\//.exec(fileURLToPath(import.meta.url)) ?? []

/** Matches frames of Node.js, of V8, and of the packages of tsrun, TensorFlow.js and module loaders. */
const LIBRARY =
  /[( ]node:|\/node_modules\/(@tsrun|@tensorflow|tsx|esbuild)\/|\((<anonymous>|index \d+)\)$/

/**
 * Omits the frames of libraries, so that the first frame is the user's line. A stack without any user
 * frame stays as it is, unless the message names the place, as for a syntax error or a missing
 * package.
 */
export function hideLibraryFrames(text: string) {
  const lines = text.split('\n')
  const kept: string[] = []
  for (const line of lines) {
    const isOfLibrary =
      isFrame(line) && (LIBRARY.test(line) || (packages !== undefined && line.includes(packages)))
    if (!isOfLibrary) kept.push(line)
    // The properties of the error follow its last frame.
    else if (line.endsWith(' {') && kept.length > 0) kept.push(`${kept.pop()!} {`)
  }
  const hidden = lines.length - kept.length
  const isPlaced =
    /^SyntaxError(?: \[\w+\])?: |^TypeError \[ERR_UNKNOWN_FILE_| imported from |: ERROR: /m.test(
      text,
    )
  if (hidden === 0 || !(isPlaced || kept.some(isFrame))) return { text, hidden: 0 }
  return { text: kept.join('\n'), hidden }
}

function isFrame(line: string): boolean {
  return /^\s+at /.test(line)
}
