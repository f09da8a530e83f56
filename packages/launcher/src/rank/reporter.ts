import { writeSync } from 'node:fs'
import { monotonicNow } from '@tsrun/core/clock'
import type { ControlMessage } from './control-message.ts'
import { describeError, summarizeError } from './error-report.ts'

/**
 * Writes uncaught errors and, at the end, the usage of this process to the control pipe. An error that
 * only follows from another rank's failure is printed as one line: the first cause should not be
 * buried under what many ranks say of it.
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

/** Whether the process will end of an uncaught error: nobody but Node looks at it. */
function isFatal(): boolean {
  const isCaught =
    process.listenerCount('uncaughtException') > 0 || process.hasUncaughtExceptionCaptureCallback()
  return !isCaught
}

/** What Node does with an error that nobody caught, in fewer words. */
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
      // The launcher is gone, or the pipe is full and not in blocking mode.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return
    }
  }
}
