import { decode, encode, isObject } from '@tsrun/core'
import { EAGER_LIMIT } from '../engine/messages/frame.ts'

/** Messages between the diagnosis code of ranks. Operations do not depend on them. */
export type Notice =
  /** Asks what operation the peer runs. */
  | { readonly kind: 'question' }
  | { readonly kind: 'answer'; readonly text: string }
  /** The line where the sender called the collective that the frame names. */
  | { readonly kind: 'site'; readonly site: string }

const LONGEST = 2048

export function encodeNotice(notice: Notice): Uint8Array {
  return encode(notice, EAGER_LIMIT)
}

/**
 * Decodes a notice. Returns undefined for any other payload, because a peer may have another
 * version.
 */
export function decodeNotice(payload: Uint8Array): Notice | undefined {
  let value: unknown
  try {
    value = decode(payload, EAGER_LIMIT)
  } catch {
    return undefined
  }
  const { kind, text, site } = isObject(value) ? value : {}
  if (kind === 'question') return { kind }
  if (kind === 'answer' && typeof text === 'string') return { kind, text: text.slice(0, LONGEST) }
  if (kind === 'site' && typeof site === 'string') return { kind, site: site.slice(0, LONGEST) }
  return undefined
}
