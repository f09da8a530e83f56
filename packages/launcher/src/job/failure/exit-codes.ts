import { constants } from 'node:os'
import type { TsrError } from '@tsrun/core'
import type { MemoryEvents } from '../../protocol/nodes.ts'
import { lacksThreads } from './failure.ts'
import { ownEnd } from './outcome.ts'
import type { RootCause } from './root-cause.ts'

/** Wrong usage, or a job that cannot start, for example without a script. */
export const USAGE = 2
/** EX_TEMPFAIL of sysexits.h: the same command may succeed later. */
export const TRY_AGAIN = 75
/** A job that has taken too long, as in timeout(1). */
export const TIMED_OUT = 124

/** Errors that end a job before its ranks do, and may not occur again. */
const temporary: readonly string[] = [
  'ERR_TSR_RENDEZVOUS_TIMEOUT',
  'ERR_TSR_NODE_LOST',
  'ERR_TSR_STORE_UNREACHABLE',
  'ERR_TSR_STORE_UNRESPONSIVE',
  'ERR_TSR_STORE_CLOSED',
  'ERR_TSR_STORE_TIMEOUT',
]

/** Error codes of a failed start of a process that may succeed later. */
const shortages: readonly unknown[] = ['EAGAIN', 'EMFILE', 'ENFILE', 'ENOMEM']

/** The exit code of a command that ended with this error. */
export function exitCodeOfError({ code, cause }: Pick<TsrError, 'code' | 'cause'>): number {
  const isShort =
    code === 'ERR_TSR_SPAWN' && shortages.includes((cause as NodeJS.ErrnoException).code)
  return isShort || temporary.includes(code) ? TRY_AGAIN : USAGE
}

/**
 * The exit code of a failed job: the culprit's exit code, or 128 + n for signal n, but TRY_AGAIN after
 * the kernel's out-of-memory killer, and if the host allows no more processes and threads. If the culprit
 * exited with code 0, the exit code of the rank that still needed it.
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
