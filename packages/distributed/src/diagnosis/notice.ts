import { decode, encode } from '@tsrun/core'
import { EAGER_LIMIT } from '../engine/engine-memory.ts'

/** What ranks tell each other for people: nothing of it changes what the engine does. */
export type Notice =
  /** What do you run? */
  | { readonly kind: 'question' }
  | { readonly kind: 'answer'; readonly text: string }
  /** Where this rank called the collective that the frame names. */
  | { readonly kind: 'site'; readonly site: string }

const LONGEST = 2048

export function encodeNotice(notice: Notice): Uint8Array {
  return encode(notice, EAGER_LIMIT)
}

/** Undefined for what is no notice: a peer may be of another version. */
export function decodeNotice(payload: Uint8Array): Notice | undefined {
  let value: Partial<Record<string, unknown>>
  try {
    value = Object(decode(payload, EAGER_LIMIT)) as typeof value
  } catch {
    return undefined
  }
  const { kind, text, site } = value
  if (kind === 'question') return { kind }
  if (kind === 'answer' && typeof text === 'string') return { kind, text: text.slice(0, LONGEST) }
  if (kind === 'site' && typeof site === 'string') return { kind, site: site.slice(0, LONGEST) }
  return undefined
}
