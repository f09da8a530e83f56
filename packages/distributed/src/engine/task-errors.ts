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
export function refusalError(task: Task, error: TsrError): TsrError {
  // Create an error object for each operation, because callers may change it.
  if (error.code === 'ERR_TSR_MISMATCH') return reviveTsrError(error.toJSON())
  const facts = { ...factsOf(task), reason: sentenceOf(error) }
  return tsrError('ERR_TSR_GROUP_FAILED', facts, { cause: error })
}

/**
 * Returns the error of a receive whose sender timed out or was aborted, and therefore withdrew the
 * message.
 */
export function withdrawnError(task: Task, link: Link): TsrError {
  const reason = 'it has given up sending the message'
  return tsrError('ERR_TSR_PEER_FAILED', { ...factsOf(task), peer: link.peer, reason })
}

export function timeoutError(task: Task): TsrError {
  const { operation, group, engine } = task
  const peers = task.peers().join(', ')
  const milliseconds = operation.timeout
  if (operation.name === 'monitoredBarrier' && group.rank === 0) {
    const facts = { rank: engine.rank, group: group.name, milliseconds, missing: peers }
    return tsrError('ERR_TSR_BARRIER_MISSING', facts)
  }
  return tsrError('ERR_TSR_OPERATION_TIMEOUT', { ...factsOf(task), milliseconds, peers })
}

export function abortError(task: Task): TsrError {
  return tsrError('ERR_TSR_OPERATION_ABORTED', factsOf(task))
}

function factsOf(task: Task) {
  return { rank: task.engine.rank, operation: task.describe(), group: task.group.name }
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
