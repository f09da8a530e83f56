import { choice, host } from '@tsrun/core'
import type { AnyTypedArray } from '../../dtype.ts'
import { SKIPPED } from '../../operation.ts'
import type { BatchedMessage, Source } from '../../process-group.ts'
import type { CallOptions } from '../../call-options.ts'
import { checkBuffer, checkRank, checkSource, checkTag, type Member } from './arguments.ts'
import type { Call, Starter } from './call.ts'
import type { FollowedWork } from './pending-work.ts'

/** @param tag - checked, or above the tags of users */
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

/** A receive. It resolves to the rank of its source, which the engine writes into the table. */
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
    // For a known source, the engine need not write it.
    table: typeof from === 'number' ? undefined : [0],
    resultOf: (table) => table[0] ?? peer,
    options,
  }
}

/** Discards the next message, whatever its size and dtype. */
export function skipCall(peer: number, tag: number): Call {
  const noBuffers = { input: undefined, output: undefined, options: undefined }
  return { name: 'recv', dtype: 'int32', count: SKIPPED, peer, tag, ...noBuffers }
}

const kindRule = choice('send', 'recv')

/**
 * Checks all messages, then starts them in order. If one cannot be started for lack of memory, the
 * earlier ones are aborted, so that the peers learn of it.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function startBatch(
  member: Member,
  starter: Starter,
  messages: readonly BatchedMessage[],
  options: CallOptions | undefined,
): FollowedWork<unknown>[] {
  const giveUp = new AbortController()
  const signals = [giveUp.signal, ...(options?.signal === undefined ? [] : [options.signal])]
  const signal = AbortSignal.any(signals)
  // Each message adds a listener.
  host.allowListeners(signal)
  const all = { ...options, signal }
  const calls = messages.map(({ op, buffer, peer, tag: given }, i) => {
    kindRule.check(`messages[${i}].op`, op)
    const tag = checkTag(given)
    return op === 'send'
      ? sendCall(member, buffer, peer, tag, all)
      : recvCall(member, buffer, peer, tag, all)
  })
  const works: FollowedWork<unknown>[] = []
  try {
    // Node 20 holds the sources of `AbortSignal.any` weakly and would collect a caller's
    // `AbortSignal.timeout`.
    for (const call of calls) works.push(starter.start<unknown>({ ...call, held: signals }))
  } catch (error) {
    giveUp.abort()
    for (const work of works) work.then(undefined, () => undefined)
    throw error
  }
  return works
}
