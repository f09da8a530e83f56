import { choice, host } from '@tsrun/core'
import type { AnyTypedArray } from '../../dtype.ts'
import { SKIPPED } from '../../operation.ts'
import type { BatchedMessage, Source } from '../../process-group.ts'
import type { CallOptions } from '../../call-options.ts'
import { checkBuffer, checkRank, checkSource, checkTag, type Member } from './arguments.ts'
import type { Call, Starter } from './call.ts'
import type { StartedWork } from './pending-work.ts'

/** @param tag - a checked tag, or a tag for internal use, which is above all tags of users */
export function sendCall(
  member: Member,
  buffer: AnyTypedArray,
  to: number,
  tag: number,
  options: CallOptions | undefined,
): Call {
  checkRank('send', member, to)
  return {
    name: 'send',
    dtype: checkBuffer('send', 'buffer', buffer, options),
    count: buffer.length,
    input: buffer,
    output: undefined,
    peer: to,
    tag,
    table: undefined,
    resultOf: undefined,
    options,
  }
}

/**
 * Makes a receive. Its result is the rank of the source, which the engine writes into the table.
 */
export function recvCall(
  member: Member,
  buffer: AnyTypedArray,
  from: Source,
  tag: number,
  options: CallOptions | undefined,
): Call<number> {
  const peer = checkSource('recv', member, from)
  return {
    name: 'recv',
    dtype: checkBuffer('recv', 'buffer', buffer, options),
    count: buffer.length,
    input: undefined,
    output: buffer,
    peer,
    tag,
    // For a known source, the engine need not return the source.
    table: typeof from === 'number' ? undefined : [0],
    resultOf: (table) => table[0] ?? peer,
    options,
  }
}

/** Makes a receive that discards the next message, whatever its size and dtype. */
export function skipCall(peer: number, tag: number): Call {
  const noBuffers = { input: undefined, output: undefined, options: undefined }
  return { name: 'recv', dtype: 'int32', count: SKIPPED, peer, tag, ...noBuffers }
}

const kindRule = choice('send', 'recv')

/**
 * Checks all messages, then starts them in order. If a message cannot be started for lack of
 * memory, the earlier messages are aborted, and their peers get an error.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function startBatch(
  member: Member,
  starter: Starter,
  messages: readonly BatchedMessage[],
  options: CallOptions | undefined,
): StartedWork<unknown>[] {
  // Each message adds a listener to the signal, which would exceed Node's listener limit.
  if (options?.signal !== undefined) host.allowListeners(options.signal)
  const calls = messages.map(({ op, buffer, peer, tag: given }, i) => {
    kindRule.check(`messages[${i}].op`, op)
    const tag = checkTag(given)
    return op === 'send'
      ? sendCall(member, buffer, peer, tag, options)
      : recvCall(member, buffer, peer, tag, options)
  })
  const works: StartedWork<unknown>[] = []
  try {
    for (const call of calls) works.push(starter.start<unknown>(call))
  } catch (error) {
    for (const work of works) {
      work.abort()
      work.then(undefined, () => undefined)
    }
    throw error
  }
  return works
}
