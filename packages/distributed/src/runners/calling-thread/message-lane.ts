import type { Heap } from '../../arena/heap.ts'
import { Credit } from '../../engine/messages/credit.ts'
import { frameKinds, readHeader, spaces, writeHeader } from '../../engine/messages/frame.ts'
import { bytesOf, fingerprintOf, sameFingerprint, type Operation } from '../../operation.ts'
import type { Ticket } from '../../ticket.ts'
import { counter, LARGEST_MAIL, type Mail } from '../../transports/mailbox.ts'

/**
 * Sends and receives the small messages to and from one rank on the calling thread, through mailboxes. The
 * counters of each stream number the messages of this thread and of the engine, so no message overtakes
 * another.
 */
export class MessageLane {
  /** The receives that wait on this thread, in call order. */
  readonly pending: Ticket[] = []
  readonly #heap: Heap
  readonly #mail: Mail
  readonly #view: DataView
  readonly #credit: Credit
  /** Whether the last call of `receive` has found a message that it could not take. */
  #isBlocked = false

  constructor(heap: Heap, mail: Mail) {
    this.#heap = heap
    this.#mail = mail
    this.#view = new DataView(heap.bytes.buffer)
    this.#credit = new Credit(mail.outgoing.credit, mail.incoming.credit)
  }

  /** Reserves the counters of a stream. Returns whether this thread can move the message. */
  reserve(operation: Operation): boolean {
    const { group, tag, count } = operation
    const isCounted = this.#mail.incoming.find(group, tag, true) >= 0
    return isCounted && count >= 0 && bytesOf(operation) <= LARGEST_MAIL
  }

  /** Sends a message, or adds a pending receive. Returns false if the engine must run it. */
  begin(ticket: Ticket, operation: Operation): boolean {
    if (operation.name === 'send') return this.#send(operation)
    if (this.#mail.incoming.isWanted) return false
    this.pending.push(ticket)
    return true
  }

  #send(operation: Operation): boolean {
    const { group, tag, input } = operation
    const { incoming, outgoing } = this.#mail
    const bytes = bytesOf(operation)
    const at = outgoing.reserve(bytes)
    if (at === undefined || !this.#credit.trySpend(bytes)) return false
    writeHeader(this.#heap, at, {
      kind: frameKinds.eager,
      space: spaces.message,
      group,
      sequence: tag,
      index: incoming.words[incoming.find(group, tag) + counter.sent]!++,
      fingerprint: fingerprintOf(operation),
      bytes,
      credit: 0,
      place: 0,
      guard: 0,
    })
    outgoing.post(input, bytes)
    if (outgoing.isWanted) this.#mail.wake()
    return true
  }

  /** Takes the oldest message if a pending receive waits for it. Returns that receive. */
  receive(): Ticket | undefined {
    const { incoming } = this.#mail
    this.#isBlocked = incoming.oldest() !== undefined
    if (!this.#isBlocked || !incoming.tryLock()) return undefined
    try {
      const at = incoming.oldest()
      const header = at === undefined ? undefined : readHeader(this.#view, at)
      if (header === undefined) return undefined
      const { group, sequence: tag, index, fingerprint, bytes } = header
      const place = this.pending.findIndex(({ operation }) => isOf(operation, group, tag))
      const ticket = this.pending[place]
      if (ticket === undefined) return undefined
      const own = ticket.operation
      const received = incoming.find(group, tag) + counter.received
      const isNext = index === incoming.words[received]! >>> 0
      // Leave a message of another size or dtype to the engine, which reports the mismatch.
      const fits = bytes === bytesOf(own) && sameFingerprint(fingerprint, fingerprintOf(own))
      if (!isNext || !fits) return undefined
      incoming.take(own.input, bytes)
      incoming.words[received]!++
      this.#credit.consume(bytes)
      this.pending.splice(place, 1)
      return ticket
    } finally {
      incoming.unlock()
    }
  }

  spin(): void {
    this.#mail.incoming.spin()
  }

  /**
   * Whether the engine must run a pending receive: if the engine has the message or takes all
   * messages of the peer, or if the oldest message is for another receive.
   */
  isForEngine({ group, tag }: Operation): boolean {
    const { incoming } = this.#mail
    const { words } = incoming
    const at = incoming.find(group, tag)
    const isKept = ((words[at + counter.arrived]! - words[at + counter.received]!) | 0) > 0
    return this.#isBlocked || isKept || incoming.isWanted
  }

  /** Removes and returns the pending receives, up to and including the last receive of a stream. */
  removeThrough({ group, tag }: Operation): Ticket[] {
    const last = this.pending.findLastIndex(({ operation }) => isOf(operation, group, tag))
    return this.pending.splice(0, last + 1)
  }
}

function isOf(operation: Operation, group: number, tag: number): boolean {
  return operation.group === group && operation.tag === tag
}
