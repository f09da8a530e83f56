import { writeSync } from 'node:fs'
import { inspect } from 'node:util'
import { monotonicNow } from '@tsrun/core/clock'
import { isTsrError, TsrError } from '@tsrun/core/errors'
import type { ControlMessage, ErrorReport } from './control-message.ts'

/**
 * Writes uncaught errors and, at the end, the usage of this process to the control pipe. An error that
 * only follows from another rank's failure is printed as one line, so that the first cause stays visible
 * among the errors of many ranks.
 */
export function reportToLauncher(controlFd: number): void {
  let failed = false
  process.on('uncaughtExceptionMonitor', (error: unknown) => {
    failed = true
    const report = describeError(error)
    const brief = report.consequence && isFatal()
    send(controlFd, { kind: 'error', at: monotonicNow(), ...report, brief })
    if (brief) process.once('uncaughtException', dieBriefly)
  })
  process.on('exit', (code) => {
    const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage()
    const usage = { cpuSeconds: (userCPUTime + systemCPUTime) / 1e6, peakBytes: maxRSS * 1024 }
    const exitedAt = code === 0 || failed ? undefined : callerOfExit()
    send(controlFd, { kind: 'exit', usage, ...(exitedAt === undefined ? {} : { exitedAt }) })
  })
}

/** Whether an uncaught error will end the process, because nothing handles it. */
function isFatal(): boolean {
  const isCaught =
    process.listenerCount('uncaughtException') > 0 || process.hasUncaughtExceptionCaptureCallback()
  return !isCaught
}

/** Ends the process as Node does at an uncaught error, with a shorter message. */
function dieBriefly(error: unknown): void {
  process.stderr.write(`${summarizeError(error)}\n`)
  process.exit(Number(process.exitCode ?? 0) || 1)
}

/** The user's frames of the stack above process.exit(); undefined when the process just ended. */
function callerOfExit(): string | undefined {
  const frames = (new Error().stack ?? '').split('\n').slice(1)
  const exit = frames.findIndex((frame) => /\bprocess\.(reallyExit|exit) /.test(frame))
  if (exit < 0) return undefined
  const own = frames.slice(exit + 1).filter((frame) => !/\(?node:/.test(frame))
  return own.length === 0 ? undefined : own.join('\n')
}

function send(controlFd: number, message: ControlMessage): void {
  const bytes = Buffer.from(JSON.stringify(message) + '\n')
  let sent = 0
  while (sent < bytes.length) {
    try {
      sent += writeSync(controlFd, bytes, sent)
    } catch (error) {
      // At EAGAIN the pipe is full and not in blocking mode; otherwise the launcher is gone.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return
    }
  }
}

const LONGEST_TEXT = 32 * 1024

type Description = Omit<ErrorReport, 'kind' | 'at' | 'brief'>

/** The facts of a thrown value. This function itself never throws. */
export function describeError(thrown: unknown): Description {
  try {
    const own = causes(thrown).find(isTsrError)
    const { name, message, code } = Object(thrown) as Record<string, unknown>
    const known = own?.code ?? (typeof code === 'string' ? code : undefined)
    return {
      name: typeof name === 'string' ? name : typeof thrown,
      message: typeof message === 'string' ? message : String(thrown),
      text: print(thrown).slice(0, LONGEST_TEXT),
      peers: own === undefined ? [] : peersOf(own),
      consequence: own !== undefined && isConsequence(own),
      ...(known === undefined ? {} : { code: known }),
    }
  } catch {
    const text = `a value of type ${typeof thrown} that cannot be printed`
    return { name: 'unknown', message: text, text, peers: [], consequence: false }
  }
}

/** The error and its causes in one line. */
function summarizeError(thrown: unknown): string {
  const chain = causes(thrown).map((error) => {
    const { name, message } = Object(error) as Record<string, unknown>
    return [name, message].filter((text) => typeof text === 'string').join(': ')
  })
  return chain.join(' [cause] ').replaceAll(/\s*\n\s*/g, ' ')
}

/** Prints as Node does, but an error of this library without its facts, which are in the message. */
function print(thrown: unknown): string {
  if (!isTsrError(thrown) || thrown.stack === undefined) return inspect(thrown)
  return thrown.cause === undefined
    ? thrown.stack
    : `${thrown.stack}\n[cause]: ${inspect(thrown.cause)}`
}

/** The error, its cause, the cause of that, … */
function causes(thrown: unknown): unknown[] {
  const chain: unknown[] = []
  for (let next = thrown; next !== undefined && next !== null && !chain.includes(next);) {
    chain.push(next)
    next = typeof next === 'object' ? (next as { cause?: unknown }).cause : undefined
  }
  return chain
}

/** Looks the code up in the table, because an error from another thread has lost its getters. */
function isConsequence({ code }: TsrError): boolean {
  return new TsrError(code, '', {}).isConsequence
}

function peersOf({ facts }: TsrError): number[] {
  const text = String((facts as TsrError['facts'] | undefined)?.['peer'] ?? '')
  return [...text.matchAll(/\d+/g)].map(([digits]) => Number(digits))
}
