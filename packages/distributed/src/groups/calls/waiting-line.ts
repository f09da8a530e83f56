import { addFrames, host } from '@tsrun/core'
import { packageFolder } from '../../package-folder.ts'

const ownPlaces = [packageFolder.pathname, host.pathOf(packageFolder), '(node:', ' node:']
/** Largest number of frames of this package between the script and `showWaitingLine`. */
const OWN_FRAMES = 10

/**
 * Puts the stack lines of the waiting script on top of an operation's error. The error usually
 * comes from the engine's thread, so its stack does not show the script.
 */
export function showWaitingLine(error: unknown, captured: { stack?: string } = {}): void {
  if (!hasStack(error)) return
  const limit = Error.stackTraceLimit
  if (captured.stack === undefined) {
    Error.stackTraceLimit = limit + OWN_FRAMES
    Error.captureStackTrace(captured, showWaitingLine)
    Error.stackTraceLimit = limit
  }
  const lines = String(captured.stack).split('\n')
  const frames = lines.filter(
    (line) => line.startsWith('    at ') && !ownPlaces.some((place) => line.includes(place)),
  )
  addFrames(error, frames.slice(0, limit))
}

/**
 * Rejects with `error`, after adding to its stack the lines of the script that await this promise.
 * V8 finds those lines through promise reactions, which exist only two microtasks later.
 */
export async function failWithWaitingLine(error: unknown): Promise<never> {
  await Promise.resolve()
  await Promise.resolve()
  showWaitingLine(error)
  throw error
}

function hasStack(error: unknown): error is { stack: string } {
  return (
    typeof error === 'object' &&
    error !== null &&
    'stack' in error &&
    typeof error.stack === 'string'
  )
}
