import { constants } from 'node:os'
import type { TsrError } from '@tsrun/core'
import type { MemoryEvents } from '../../protocol/nodes.ts'
import { lacksThreads } from './failure.ts'
import { ownEnd } from './outcome.ts'
import type { RootCause } from './root-cause.ts'

/** The command line is wrong, or the job cannot start, for example without a script. */
export const USAGE = 2
/** EX_TEMPFAIL of sysexits.h: the same command may succeed later. */
export const TRY_AGAIN = 75
/** The job exceeded its time limit. timeout(1) uses the same code. */
export const TIMED_OUT = 124

/** Error codes of the job, not of a rank. The same job may succeed at the next try. */
const temporary: readonly string[] = [
  'ERR_TSR_RENDEZVOUS_TIMEOUT',
  'ERR_TSR_NODE_LOST',
  'ERR_TSR_STORE_UNREACHABLE',
  'ERR_TSR_STORE_UNRESPONSIVE',
  'ERR_TSR_STORE_CLOSED',
  'ERR_TSR_STORE_TIMEOUT',
]

/** The system error codes of a process that cannot start now but may start later. */
const shortages: readonly unknown[] = ['EAGAIN', 'EMFILE', 'ENFILE', 'ENOMEM']

/** The exit code of a command that ended with this error. */
export function exitCodeOfError({ code, cause }: Pick<TsrError, 'code' | 'cause'>): number {
  const isShort =
    code === 'ERR_TSR_SPAWN' && shortages.includes((cause as NodeJS.ErrnoException).code)
  return isShort || temporary.includes(code) ? TRY_AGAIN : USAGE
}

/**
 * Returns the exit code of a failed job: the exit code of the rank that caused the failure, or 128 + n
 * for signal n. If only the error of another rank reveals the cause, uses the other rank's exit code.
 * Returns TRY_AGAIN after an out-of-memory kill, or if the host allows no more processes or threads.
 */
export function exitCodeOf(
  { culprit, witness }: RootCause,
  { kills = 0 }: Pick<MemoryEvents, 'kills'>,
): number {
  const failed = witness ?? culprit
  const { exitCode, signal } = ownEnd(failed)
  if ((signal === 'SIGKILL' && kills > 0) || lacksThreads(failed)) return TRY_AGAIN
  if (signal !== null) return 128 + constants.signals[signal]
  return exitCode ?? 1
}
