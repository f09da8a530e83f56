import { createLogger, messageOf } from '@tsrun/core'

/** Logs what the launcher does without, and why, as a JSON line on standard error, at the level `info`. */
export function logProblem(error: unknown, message: string): void {
  createLogger('launcher').info({ reason: messageOf(error) }, message)
}
