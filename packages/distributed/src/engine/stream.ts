import type { Fingerprint } from '../operation.ts'
import type { Transfer } from './transfer.ts'
import type { Link } from './link.ts'
import type { Offer } from './pulls.ts'

/**
 * A message that came before its receive: a stored eager payload, or an announcement or an offer
 * (`at` -1).
 */
export interface Unexpected {
  readonly index: number
  readonly fingerprint: Fingerprint
  readonly at: number
  readonly bytes: number
  readonly offer?: Offer
}

export interface Clearance {
  readonly index: number
  readonly fingerprint: Fingerprint
  readonly bytes: number
}

/**
 * The messages between this rank and one peer that belong to one collective, or to one tag.
 * Both sides number them, so frames may overtake each other.
 */
export interface Stream {
  readonly link: Link
  readonly key: number
  readonly space: number
  readonly group: number
  readonly sequence: number
  nextSend: number
  nextReceive: number
  /** Large sends that wait for the peer's clearance. */
  readonly sends: Transfer[]
  readonly receives: Transfer[]
  readonly unexpected: Unexpected[]
  /** Clearances that came before their send. */
  readonly clearances: Clearance[]
  /** Unexpected messages whose payload is coming in. */
  coming: number
  /** While an answer to `forget` is awaited: the receives that wait to be cleared. */
  held: Transfer[] | undefined
}

/** Unique among the streams of a link: group < 2^18, space < 4, sequence < 2^32. */
export function streamKey(space: number, group: number, sequence: number): number {
  return (group * 4 + space) * 4294967296 + sequence
}

export function createStream(link: Link, space: number, group: number, sequence: number): Stream {
  return {
    link,
    key: streamKey(space, group, sequence),
    space,
    group,
    sequence,
    nextSend: 0,
    nextReceive: 0,
    sends: [],
    receives: [],
    unexpected: [],
    clearances: [],
    coming: 0,
    held: undefined,
  }
}

/** Removes and returns the entry with this index, if there is one. */
export function takeIndex<T extends { readonly index: number }>(
  entries: T[],
  index: number,
): T | undefined {
  for (let i = 0; i < entries.length; i++) {
    if (entries[i]!.index === index) return entries.splice(i, 1)[0]
  }
  return undefined
}
