import { tsrError } from '@tsrun/core'
import type { AnyTypedArray } from '../../dtype.ts'
import { SKIPPED } from '../../operation.ts'
import type { BatchedMessage, CallOptions, Source } from '../../process-group.ts'
import { checkBuffer, checkRoot, checkSource, checkTag } from './arguments.ts'
import type { Member } from './collectives.ts'
import type { Call } from './operations.ts'

/** @param tag - checked, or above the user's */
export function sendCall(
  member: Member,
  buffer: AnyTypedArray,
  to: number,
  tag: number,
  options: CallOptions | undefined,
): Call {
  checkRoot('send', member, to)
  const dtype = checkBuffer('send', 'buffer', buffer, options)
  const { length: count } = buffer
  return { name: 'send', dtype, count, input: buffer, output: undefined, peer: to, tag, options }
}

/** The engine writes the rank of the source in its table. */
export function recvCall(
  member: Member,
  buffer: AnyTypedArray,
  from: Source,
  tag: number,
  options: CallOptions | undefined,
): Call {
  const peer = checkSource('recv', member, from)
  return {
    name: 'recv',
    dtype: checkBuffer('recv', 'buffer', buffer, options),
    count: buffer.length,
    input: undefined,
    output: buffer,
    peer,
    tag,
    // a known source needs no answer
    ...(typeof from === 'number' ? {} : { table: [0] }),
    options,
  }
}

/** Throws the next message away, whatever it is. */
export function skipCall(peer: number, tag: number): Call {
  const noBuffers = { input: undefined, output: undefined, options: undefined }
  return { name: 'recv', dtype: 'int32', count: SKIPPED, peer, tag, ...noBuffers }
}

/** Checks all of them before the first is started. @throws ERR_TSR_ARGUMENT */
export function batchCalls(
  member: Member,
  messages: readonly BatchedMessage[],
  options: CallOptions | undefined,
): Call[] {
  return messages.map((message, i) => {
    const tag = checkTag(message.tag ?? 0)
    const { op, buffer } = message
    switch (op) {
      case 'send':
        return sendCall(member, buffer, message.peer, tag, options)
      case 'recv':
        return recvCall(member, buffer, message.peer, tag, options)
      default: {
        const name = `messages[${i}].op`
        const expected = "'send' or 'recv'"
        throw tsrError('ERR_TSR_ARGUMENT', { name, value: String(op), expected })
      }
    }
  })
}
