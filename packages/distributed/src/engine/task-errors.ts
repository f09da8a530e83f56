import { isTsrError, messageOf, reviveTsrError, tsrError, type TsrError } from '@tsrun/core'
import type { Link } from './messages/link.ts'
import type { Task } from './task.ts'

/**
 * Returns the error of an operation that needs a departed peer. Without an operation, returns the
 * error of the group.
 */
export function peerError(
  task: Task | undefined,
  link: Link,
  rank: number,
  group = task?.group.name ?? '',
): TsrError {
  // Create an error object for each operation, because callers may change it.
  if (link.failure !== undefined) return reviveTsrError(thrownError(link.failure).toJSON())
  const operation = task === undefined ? 'no operation' : task.describe()
  const facts = { peer: link.peer, rank, operation, group }
  if (link.closed === undefined) return tsrError('ERR_TSR_GROUP_LEFT', facts)
  if (link.closed === 'left') return tsrError('ERR_TSR_PEER_LEFT', facts)
  return tsrError('ERR_TSR_PEER_LOST', { ...facts, reason: link.closeReason })
}

/** Returns the error of an operation on a group that has already failed. */
export function refusalError(task: Task, error: TsrError, rank: number): TsrError {
  // Create an error object for each operation, because callers may change it.
  if (error.code === 'ERR_TSR_MISMATCH') return reviveTsrError(error.toJSON())
  const facts = {
    rank,
    operation: task.describe(),
    group: task.group.name,
    reason: sentenceOf(error),
  }
  return tsrError('ERR_TSR_GROUP_FAILED', facts, { cause: error })
}

/**
 * Returns the error of a receive whose sender timed out or was aborted, and therefore withdrew the
 * message.
 */
export function withdrawnError(task: Task, link: Link, rank: number): TsrError {
  return tsrError('ERR_TSR_PEER_FAILED', {
    rank,
    operation: task.describe(),
    group: task.group.name,
    peer: link.peer,
    reason: 'it has given up sending the message',
  })
}

export function timeoutError(task: Task, rank: number): TsrError {
  const { operation, group } = task
  const peers = task.peers().join(', ')
  const facts = { rank, group: group.name, milliseconds: operation.timeout }
  if (operation.name === 'monitoredBarrier' && group.rank === 0) {
    return tsrError('ERR_TSR_BARRIER_MISSING', { ...facts, missing: peers })
  }
  return tsrError('ERR_TSR_OPERATION_TIMEOUT', { ...facts, operation: task.describe(), peers })
}

export function abortError(task: Task, rank: number): TsrError {
  const facts = { rank, operation: task.describe(), group: task.group.name }
  return tsrError('ERR_TSR_OPERATION_ABORTED', facts)
}

/** Returns the message of an error without its advice, for use inside another message. */
export function sentenceOf({ message, advice, code }: TsrError): string {
  const end = message.indexOf(`. ${advice}`)
  return end < 0 ? message : `${message.slice(0, end)} (${code})`
}

/** Converts anything that an algorithm or a link has thrown to a TsrError. */
export function thrownError(cause: unknown): TsrError {
  if (isTsrError(cause)) return cause
  const what = messageOf(cause)
  return tsrError('ERR_TSR_INTERNAL', { what }, { cause })
}
