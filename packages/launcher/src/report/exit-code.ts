import { constants } from 'node:os'
import type { RootCause } from './root-cause.ts'

/**
 * The exit code of a failed job: that of the culprit, 128 + n for signal n, and that of the rank
 * which missed it for a culprit that left with 0.
 */
export function exitCodeOf({ culprit, witness }: RootCause): number {
  const { exitCode, signal } = witness ?? culprit
  if (signal !== null) return 128 + constants.signals[signal]
  return exitCode ?? 1
}
