import { choice, decode, either, encode, object, text, type Of } from '@tsrun/core'
import { EAGER_LIMIT } from '../engine/messages/frame.ts'

const notice = either(
  /** Asks what operation the peer runs. */
  object({ kind: choice('question') }),
  object({ kind: choice('answer'), text }),
  /** The line where the sender called the collective that the frame names. */
  object({ kind: choice('site'), site: text }),
)

/** A message between the diagnosis code of two ranks. Operations do not depend on it. */
export type Notice = Of<typeof notice>

export function encodeNotice(notice: Notice): Uint8Array {
  return encode(notice, EAGER_LIMIT)
}

/**
 * Decodes a notice. Returns undefined for any other payload, because a peer may have another
 * version.
 */
export function decodeNotice(payload: Uint8Array): Notice | undefined {
  try {
    const value = decode(payload, EAGER_LIMIT)
    return notice.is(value) ? value : undefined
  } catch {
    return undefined
  }
}
