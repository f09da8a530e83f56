import type { Fingerprint } from '../../operation.ts'
import type { Mail } from '../../transports/mailbox.ts'
import type { Transport } from '../../transports/transport.ts'
import {
  frameKinds,
  HEADER_BYTES,
  isPlausible,
  readHeader,
  spaces,
  type FrameHeader,
  type StreamAddress,
} from './frame.ts'
import { FrameReader, type Destination } from './frame-reader.ts'
import { FrameWriter, NO_MESSAGE } from './frame-writer.ts'
import { createGets } from './gets.ts'
import type { EngineMemory } from './memory.ts'
import { Receives } from './receives.ts'
import { createRetirement } from './retirement.ts'
import { Sends } from './sends.ts'
import { Stream, streamKey, type Transfer } from './stream.ts'

/** Events of a link for the engine. Events of one message go to its `Transfer` instead. */
export interface LinkEvents {
  /** Called for a message without a receive, which may belong to another operation. */
  onUnexpected(stream: Stream, theirs: Fingerprint): void
  /** Called when a peer reports that an operation or a group has failed. */
  readonly onFault: (link: Link, header: FrameHeader, payload: Uint8Array) => void
  readonly onNotice: LinkEvents['onFault']
  /** Whether an operation waits for a message from any source. */
  isAnyAwaited(): boolean
  /** Whether this rank has destroyed the group. Messages of the group are then discarded. */
  hasLeft(group: number): boolean
  onClosed(link: Link): void
}

/** Kinds of frames that may open a stream. */
const { eager, requestToSend, clearToSend, data, exposed } = frameKinds
const opening: ReadonlySet<number> = new Set([eager, requestToSend, clearToSend, data, exposed])

/** The messages to and from one peer, and the frames that carry them. */
export class Link {
  readonly peer: number
  readonly streams = new Map<number, Stream>()
  /** Counts the frames and bytes of this link, including payloads copied from shared memory. */
  readonly traffic = { bytesSent: 0, bytesReceived: 0, framesSent: 0 }
  readonly transport: Transport
  readonly memory: EngineMemory
  readonly events: LinkEvents
  readonly writer: FrameWriter
  readonly sends: Sends
  readonly receives: Receives
  /** Copies payloads from the peer's heap; undefined if the peer shares no memory. */
  readonly gets: ReturnType<typeof createGets> | undefined
  /** Whether this rank and the peer copy large messages from heap to heap. */
  readonly sharesMemory: boolean
  readonly mail: Mail | undefined
  /** Number of pending messages on this link that an operation waits for. */
  transfers = 0
  /** Why the link is closed; undefined while the link is open. */
  closed: 'lost' | 'left' | undefined
  /** The error because of which this side closed the link. */
  failure: unknown
  readonly #reader: FrameReader
  readonly #retirement: ReturnType<typeof createRetirement>
  readonly #view: DataView
  #saidGoodbye = false
  #sentGarbage = false

  constructor(peer: number, transport: Transport, memory: EngineMemory, events: LinkEvents) {
    this.peer = peer
    this.sharesMemory = transport.sharesMemory?.(peer) === true
    this.mail = transport.mail?.(peer)
    this.transport = transport
    this.memory = memory
    this.#view = new DataView(memory.heap.bytes.buffer)
    this.events = events
    this.writer = new FrameWriter(this)
    this.gets = this.sharesMemory ? createGets(this) : undefined
    this.sends = new Sends(this)
    this.receives = new Receives(this)
    this.#retirement = createRetirement(this)
    this.#reader = new FrameReader(this)
  }

  get hasOutgoing(): boolean {
    return !this.writer.isEmpty
  }

  /** Whether the link expects to send or receive data. */
  get isBusy(): boolean {
    return this.transfers > 0 || this.hasOutgoing
  }

  get closeReason(): string {
    if (this.#sentGarbage) return 'it sent bytes that are no frame'
    return this.transport.closeReason(this.peer)
  }

  stream(space: number, group: number, sequence: number): Stream {
    const key = streamKey(space, group, sequence)
    let stream = this.streams.get(key)
    if (stream === undefined) {
      stream = new Stream(this, space, group, sequence)
      this.streams.set(key, stream)
      if (space === spaces.message) this.#retirement.onOpened()
    }
    return stream
  }

  /** Moves available data, and returns whether anything moved. A link that cannot continue is lost. */
  move(): boolean {
    if (this.failure !== undefined) return false
    try {
      let moved = this.hasOutgoing && this.writer.flush()
      if (this.#wantsMail && this.#readMail()) moved = true
      if (this.#reader.read()) moved = true
      if (this.gets?.isEmpty() === false) {
        this.gets.advance()
        moved = true
      }
      if (this.mail !== undefined) this.mail.incoming.isWanted = this.#wantsMail
      return moved
    } catch (cause) {
      this.#fail(cause)
      return true
    }
  }

  /** Releases the transfer of a failed operation. A payload that still arrives is discarded. */
  cancel(transfer: Transfer): void {
    transfer.cancelled = true
    this.receives.cancel(transfer)
    this.#try(() => {
      this.sends.cancel(transfer)
    })
  }

  /** Drops the stream of a collective. Returns the fingerprint of a leftover message. */
  closeStream(stream: Stream): Fingerprint | undefined {
    this.streams.delete(stream.key)
    if (stream.unexpected.length > 0) {
      this.#try(() => {
        this.receives.discard(stream.unexpected)
      })
    }
    return stream.unexpected[0]?.fingerprint
  }

  closeStreams(group: number): void {
    for (const stream of [...this.streams.values()]) {
      if (stream.group === group) this.closeStream(stream)
    }
  }

  /** Asks the peer whether it runs the same collective. */
  inquire(address: StreamAddress, fingerprint: Fingerprint): void {
    this.#try(() => {
      this.writer.write(frameKinds.inquiry, address, { ...NO_MESSAGE, fingerprint })
    })
  }

  /** Tells the peer that an operation cannot finish on this rank. */
  sendFault(address: StreamAddress, payload: Uint8Array): void {
    this.#try(() => {
      this.writer.writeText(frameKinds.fault, address, payload)
    })
  }

  /** Sends a notice to the diagnosis code of the peer. */
  sendNotice(address: StreamAddress, payload: Uint8Array): void {
    try {
      this.writer.writeText(frameKinds.notice, address, payload)
    } catch {
      // Drop the notice if there is no memory. The engine does not need it.
    }
  }

  sayGoodbye(): void {
    if (this.#saidGoodbye || this.closed !== undefined) return
    this.#saidGoodbye = true
    this.#try(() => {
      this.writer.writeBare(frameKinds.close)
    })
    // Send nothing after the close frame. A frame that reaches a closed connection can reset it, and
    // the peer then loses unread data.
    this.writer.end()
  }

  get #wantsMail(): boolean {
    return this.transfers > 0 || this.events.isAnyAwaited()
  }

  #readMail(): boolean {
    const mail = this.mail?.incoming
    if (mail?.oldest() === undefined || this.failure !== undefined || !mail.tryLock()) return false
    try {
      for (let at = mail.oldest(); at !== undefined; at = mail.oldest()) {
        const header = readHeader(this.#view, at)
        if (header?.kind !== eager || !isPlausible(header)) {
          this.#sentGarbage = true
          throw new RangeError(this.closeReason)
        }
        const destination = this.onFrame(header)!
        mail.take(destination.at, header.bytes)
        destination.onArrived()
      }
    } finally {
      mail.unlock()
    }
    return true
  }

  /** Handles data that is not a frame. The link is unusable afterwards. */
  onGarbage(): void {
    this.#sentGarbage = true
    this.transport.closePeer(this.peer)
  }

  /** Handles a header. Returns the destination of its payload; undefined if there is no payload. */
  onFrame(header: FrameHeader): Destination | undefined {
    this.writer.onCredit(header.credit)
    const { kind, space, group, sequence, index, fingerprint, bytes } = header
    if (opening.has(kind) && this.events.hasLeft(group)) return this.receives.discardFrame(header)
    switch (kind) {
      case frameKinds.eager:
        return this.receives.onEager(this.stream(space, group, sequence), header)
      case frameKinds.data:
        return this.receives.onData(this.stream(space, group, sequence), header)
      case frameKinds.requestToSend: {
        const requested = { index, fingerprint, at: -1, bytes }
        this.receives.onRequestToSend(this.stream(space, group, sequence), requested)
        return undefined
      }
      case frameKinds.clearToSend: {
        const cleared = { index, fingerprint, bytes }
        this.sends.onClearToSend(this.stream(space, group, sequence), cleared)
        return undefined
      }
      case frameKinds.exposed:
        this.receives.onExposed(this.stream(space, group, sequence), header)
        return undefined
      case frameKinds.getDone:
        this.sends.onGetDone(header.guard)
        return undefined
      case frameKinds.withdrawn:
        if (header.guard !== 0) this.gets?.onWithdrawn(header.guard)
        else this.receives.onWithdrawn(this.streams.get(streamKey(space, group, sequence)), index)
        return undefined
      case frameKinds.retire:
        if (!this.events.hasLeft(group)) this.#retirement.onRetire(header)
        return undefined
      case frameKinds.retired:
        this.receives.clearHeld(this.#retirement.onRetired(header))
        return undefined
      case frameKinds.inquiry:
        // Use a temporary stream: the stream of the peer's collective may be completed, and must
        // not be reopened.
        this.events.onUnexpected(new Stream(this, space, group, sequence), fingerprint)
        return undefined
      case frameKinds.fault:
        // The peer posted its mailbox messages before the fault, so read them first.
        this.#readMail()
        return this.#onText(header, this.events.onFault)
      case frameKinds.notice:
        return this.#onText(header, this.events.onNotice)
      case frameKinds.close:
        this.close('left')
        return undefined
      default:
        return undefined
    }
  }

  #onText(header: FrameHeader, onText: LinkEvents['onFault']): Destination {
    const block = this.memory.takeFrameBlock(header.bytes)
    const at = block + HEADER_BYTES
    return {
      at,
      onArrived: () => {
        const payload = this.memory.heap.bytes.slice(at, at + header.bytes)
        this.memory.giveFrameBlock(block, header.bytes)
        onText(this, header, payload)
      },
    }
  }

  #try(action: () => void): void {
    try {
      action()
    } catch (cause) {
      this.#fail(cause)
    }
  }

  /** Closes the link after an error, such as no memory for a frame. A stream must not skip frames. */
  #fail(cause: unknown): void {
    this.failure ??= cause
    this.writer.discard()
    this.transport.closePeer(this.peer)
    this.close('lost')
  }

  /** Handles the end of the peer's stream. */
  close(how: 'lost' | 'left'): void {
    if (this.closed !== undefined) return
    this.#readMail()
    this.closed = how
    this.writer.end()
    if (how === 'left') {
      // Closing tells the peer that this rank has read everything.
      this.writer.discard()
      this.transport.closePeer(this.peer)
    }
    this.events.onClosed(this)
  }
}
