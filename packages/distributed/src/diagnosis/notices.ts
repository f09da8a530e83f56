import { choice, decode, either, encode, object, text, type Of } from '@tsrun/core'
import { EAGER_LIMIT } from '../engine/messages/frame.ts'

const notice = either(
  /** Asks what operation the peer runs. */
  object({ kind: choice('question') }),
  object({ kind: choice('answer'), text }),
  /** The line where the sender called the collective that the frame names. */
  object({ kind: choice('site'), site: text }),
)

/** Messages between the diagnosis code of ranks. Operations do not depend on them. */
export type Notice = Of<typeof notice>

export function encodeNotice(message: Notice): Uint8Array {
  return encode(message, EAGER_LIMIT)
}

/**
 * Decodes a notice. Returns undefined for any other payload, because a peer may have another
 * version.
 */
export function decodeNotice(payload: Uint8Array): Notice | undefined {
  try {
    const message = decode(payload, EAGER_LIMIT)
    return notice.is(message) ? message : undefined
  } catch {
    return undefined
  }
}
