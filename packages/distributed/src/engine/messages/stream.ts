import type { Message } from '../../algorithms/channel.ts'
import type { Fingerprint } from '../../operation.ts'
import { counter } from '../../transports/mailbox.ts'
import { spaces, type StreamAddress } from './frame.ts'
import type { Link } from './link.ts'

/** One message in one direction. The engine creates it, and its link moves the bytes. */
export interface Transfer extends Message {
  readonly stream: Stream
  /** Position among the stream's messages in this direction. */
  index: number
  readonly fingerprint: Fingerprint
  /** Whether the operation has failed. A payload that still arrives is then discarded. */
  cancelled: boolean
  /** Called when the first byte has moved. */
  onStarted(): void
  /** Called when the last byte has moved. */
  onDone(): void
  /** Called when the peer withdraws the message that belongs to this receive. */
  onWithdrawn(): void
  /** Called when the peer's message at this position belongs to another call. */
  onMismatch(theirs: Fingerprint): void
}

/** The facts about a message that arrive before the payload. */
export interface MessageFacts {
  readonly index: number
  readonly fingerprint: Fingerprint
  readonly bytes: number
}

/** The location of a payload that a peer has exposed. */
export interface ExposedPayload {
  /** Offset of the payload in the peer's heap. */
  readonly place: number
  /** Offset in the peer's heap of a word, which is 1 while the payload is valid. */
  readonly guard: number
}

/**
 * A message that arrived before its receive: a stored eager payload at offset `at`. If `at` is -1,
 * it is a request to send or an exposed payload.
 */
export interface Unexpected extends MessageFacts {
  readonly at: number
  readonly exposed?: ExposedPayload
}

/**
 * Returns a key that is unique among the streams of a link. It packs group < 2^18, space < 4 and
 * sequence < 2^32.
 */
export function streamKey(space: number, group: number, sequence: number): number {
  return (group * 4 + space) * 4294967296 + sequence
}

/**
 * The messages between this rank and one peer that belong to one collective or one tag. Both sides
 * number the messages, so frames may arrive in another order.
 */
export class Stream implements StreamAddress {
  readonly link: Link
  readonly key: number
  readonly space: number
  readonly group: number
  readonly sequence: number
  /** Large sends that wait for a clear-to-send. */
  readonly sends: Transfer[] = []
  readonly receives: Transfer[] = []
  readonly unexpected: Unexpected[] = []
  /** Clear-to-sends that arrived before their send. */
  readonly cleared: MessageFacts[] = []
  /** Number of unexpected messages whose payload is arriving. */
  arriving = 0
  /** Receives to clear when the answer to `retire` arrives; undefined if no answer is pending. */
  held: Transfer[] | undefined
  /** The counters of the stream. They are private, or shared by the threads of this rank. */
  #words: number[] | Int32Array = [0, 0, 0, 0, 0]
  #at = 0

  constructor(link: Link, space: number, group: number, sequence: number) {
    this.link = link
    this.key = streamKey(space, group, sequence)
    this.space = space
    this.group = group
    this.sequence = sequence
  }

  /** Whether the calling thread also sends and receives messages of the stream. */
  get isShared(): boolean {
    return this.#find() > 0
  }

  get nextSend(): number {
    return this.#read(counter.sent)
  }

  set nextSend(index: number) {
    this.#write(counter.sent, index)
  }

  get nextReceive(): number {
    return this.#read(counter.received)
  }

  set nextReceive(index: number) {
    this.#write(counter.received, index)
  }

  /** Tells the calling thread that it cannot receive this message any more. */
  noteArrival(index: number): void {
    this.#write(counter.arrived, index + 1)
  }

  #read(which: number): number {
    const at = this.#find() + which
    return this.#words[at]! >>> 0
  }

  #write(which: number, count: number): void {
    const at = this.#find() + which
    this.#words[at] = count
  }

  #find(): number {
    const { group, sequence, space, link } = this
    if (this.#at > 0 || space !== spaces.message || link.mail === undefined) return this.#at
    const { incoming } = link.mail
    const at = incoming.find(group, sequence)
    if (at < 0) return 0
    this.#words = incoming.words
    return (this.#at = at)
  }
}

/** Removes and returns the entry with this index, if any. */
export function takeIndex<T extends { readonly index: number }>(
  entries: T[],
  index: number,
): T | undefined {
  for (let i = 0; i < entries.length; i++) {
    if (entries[i]!.index === index) return entries.splice(i, 1)[0]
  }
  return undefined
}
