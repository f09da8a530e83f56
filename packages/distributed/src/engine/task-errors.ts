import { reviveTsrError, tsrError, type TsrError } from '@tsrun/core'
import type { Link } from './link.ts'
import { nameOf, peersOf, type Task } from './task.ts'

/** The error of an operation, or of a group where nothing ran, that needs a peer that is gone. */
export function peerError(
  task: Task | undefined,
  link: Link,
  rank: number,
  group = task?.group.name ?? '',
): TsrError {
  // an error of its own for each operation
  if (link.failure !== undefined) return reviveTsrError(link.failure.toJSON())
  const operation = task === undefined ? 'no operation' : nameOf(task)
  const facts = { peer: link.peer, rank, operation, group }
  if (link.closed === undefined) return tsrError('ERR_TSR_GROUP_LEFT', facts)
  if (link.closed === 'left') return tsrError('ERR_TSR_PEER_LEFT', facts)
  return tsrError('ERR_TSR_PEER_LOST', { ...facts, reason: link.closeReason })
}

/** The error of an operation of a group that has failed before. */
export function refusalError(task: Task, error: TsrError, rank: number): TsrError {
  // an error of its own for each operation
  if (error.code === 'ERR_TSR_MISMATCH') return reviveTsrError(error.toJSON())
  const facts = { rank, operation: nameOf(task), group: task.group.name, reason: sentenceOf(error) }
  return tsrError('ERR_TSR_GROUP_FAILED', facts, { cause: error })
}

/** The error of a receive whose sender has timed out, or was aborted. */
export function withdrawnError(task: Task, link: Link, rank: number): TsrError {
  return tsrError('ERR_TSR_PEER_FAILED', {
    rank,
    operation: nameOf(task),
    group: task.group.name,
    peer: link.peer,
    reason: 'it has given up sending the message',
  })
}

export function timeoutError(task: Task, rank: number): TsrError {
  if (task.operation.name === 'monitoredBarrier' && task.group.rank === 0) {
    return tsrError('ERR_TSR_BARRIER_MISSING', {
      rank,
      group: task.group.name,
      milliseconds: task.operation.timeout,
      missing: peersOf(task).join(', '),
    })
  }
  return tsrError('ERR_TSR_OPERATION_TIMEOUT', {
    rank,
    operation: nameOf(task),
    group: task.group.name,
    milliseconds: task.operation.timeout,
    peers: peersOf(task).join(', '),
  })
}

export function abortError(task: Task, rank: number): TsrError {
  const facts = { rank, operation: nameOf(task), group: task.group.name }
  return tsrError('ERR_TSR_OPERATION_ABORTED', facts)
}

/** What happened, without the advice: for a message that has advice of its own. */
export function sentenceOf({ message, advice, code }: TsrError): string {
  const end = message.indexOf(`. ${advice}`)
  return end < 0 ? message : `${message.slice(0, end)} (${code})`
}

/** What an algorithm threw, as an error of the table. */
export function thrownError(cause: unknown): TsrError {
  if (isTsr(cause)) return cause
  const what = cause instanceof Error ? cause.message : String(cause)
  return tsrError('ERR_TSR_INTERNAL', { what }, { cause })
}

function isTsr(error: unknown): error is TsrError {
  return typeof error === 'object' && error !== null && 'facts' in error && 'code' in error
}
