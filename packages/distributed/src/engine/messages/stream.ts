import type { Message } from '../../algorithms/channel.ts'
import type { Fingerprint } from '../../operation.ts'
import type { StreamAddress } from './frame.ts'
import type { Link } from './link.ts'

/** What the messages of a link tell the engine. */
export interface StreamEvents {
  /** A message came for which nothing waits: compare it with what runs, or ran, there. */
  onUnexpected(stream: Stream, theirs: Fingerprint): void
}

/** One message under way in one direction. The engine makes it, and its link moves it. */
export interface Transfer extends Message {
  readonly stream: Stream
  /** Position among the stream's messages in this direction. */
  index: number
  readonly fingerprint: Fingerprint
  /** The operation has failed: a payload that still comes is discarded. */
  cancelled: boolean
  /** Its first byte has moved. */
  onStarted(): void
  /** Its last byte has moved. */
  onDone(): void
  /** The peer has given up the message that this receive waits for. */
  onWithdrawn(): void
  /** The peer's end of the message belongs to another call. */
  onMismatch(theirs: Fingerprint): void
}

/** What is known of a message before its payload comes. */
export interface MessageFacts {
  readonly index: number
  readonly fingerprint: Fingerprint
  readonly bytes: number
}

/** Where a peer has exposed the payload of a message. */
export interface ExposedPayload {
  /** Offset in the peer's heap. */
  readonly place: number
  /** Offset in the peer's heap of a word that is 1 as long as the payload is valid. */
  readonly guard: number
}

/**
 * A message that came before its receive: a stored eager payload at offset `at`, or, where `at` is
 * -1, a request to send or an exposed payload.
 */
export interface Unexpected extends MessageFacts {
  readonly at: number
  readonly exposed?: ExposedPayload
}

/**
 * The messages between this rank and one peer that belong to one collective, or to one tag.
 * Both sides number them, so frames may overtake each other.
 */
export interface Stream extends StreamAddress {
  readonly link: Link
  readonly key: number
  nextSend: number
  nextReceive: number
  /** Large sends that wait for a clear-to-send. */
  readonly sends: Transfer[]
  readonly receives: Transfer[]
  readonly unexpected: Unexpected[]
  /** Clear-to-sends that came before their send. */
  readonly cleared: MessageFacts[]
  /** Unexpected messages whose payload is arriving. */
  arriving: number
  /** The receives that are not cleared until the answer to `retire` has come; else undefined. */
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
    cleared: [],
    arriving: 0,
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
