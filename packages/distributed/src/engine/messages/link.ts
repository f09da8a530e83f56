import type { Fingerprint } from '../../operation.ts'
import type { Transport } from '../../transports/transport.ts'
import { frameKinds, HEADER_BYTES, spaces, type FrameHeader, type StreamAddress } from './frame.ts'
import { FrameReader, type Destination } from './frame-reader.ts'
import { FrameWriter, NO_MESSAGE, type LinkTraffic } from './frame-writer.ts'
import { Gets } from './gets.ts'
import type { EngineMemory } from './memory.ts'
import { Receives } from './receives.ts'
import { Retirement } from './retirement.ts'
import { Sends } from './sends.ts'
import { createStream, streamKey, type Stream, type StreamEvents, type Transfer } from './stream.ts'

/** What a link tells the engine. What concerns one message goes to its `Transfer`. */
export interface LinkEvents extends StreamEvents {
  /** Another rank says that an operation or a group has failed. */
  readonly onFault: (link: Link, header: FrameHeader, payload: Uint8Array) => void
  readonly onNotice: LinkEvents['onFault']
  /** Whether this rank has left the group for good: messages of it are discarded. */
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
  readonly traffic: LinkTraffic = { bytesSent: 0, bytesReceived: 0, framesSent: 0 }
  readonly sends: Sends
  readonly receives: Receives
  /** Whether large messages are copied from heap to heap. */
  readonly sharesMemory: boolean
  /** Messages under way that an operation waits for. */
  transfers = 0
  /** Why messages cannot be exchanged any more; undefined while they can. */
  closed: 'lost' | 'left' | undefined
  /** What was thrown when this side had to give the link up. */
  failure: unknown
  readonly #transport: Transport
  readonly #memory: EngineMemory
  readonly #events: LinkEvents
  readonly #writer: FrameWriter
  readonly #reader: FrameReader
  readonly #retirement: Retirement
  readonly #gets: Gets | undefined
  #saidGoodbye = false
  #sentGarbage = false

  constructor(peer: number, transport: Transport, memory: EngineMemory, events: LinkEvents) {
    const { traffic } = this
    this.peer = peer
    this.sharesMemory = transport.sharesMemory?.(peer) === true
    this.#transport = transport
    this.#memory = memory
    this.#events = events
    const writer = new FrameWriter(transport, memory, peer, traffic)
    this.#writer = writer
    this.#gets = this.sharesMemory ? new Gets(transport, memory, peer, writer, traffic) : undefined
    this.sends = new Sends(writer, memory, events, traffic, this.sharesMemory)
    this.receives = new Receives(writer, memory, events, this.#gets)
    this.#retirement = new Retirement(writer, this.streams)
    this.#reader = new FrameReader(transport, memory, peer, traffic, {
      onFrame: (header) => this.#onFrame(header),
      onGarbage: () => {
        this.#sentGarbage = true
        transport.closePeer(peer)
      },
      onClosed: () => {
        this.#close('lost')
      },
      expectsPayload: () => this.receives.expectsData,
    })
  }

  /** Whether frames wait for the transport. */
  get hasOutgoing(): boolean {
    return !this.#writer.isEmpty
  }

  /** Whether something is expected to move. */
  get isBusy(): boolean {
    return this.transfers > 0 || this.hasOutgoing
  }

  get closeReason(): string {
    if (this.#sentGarbage) return 'it sent bytes that are no frame'
    return this.#transport.closeReason(this.peer)
  }

  stream(space: number, group: number, sequence: number): Stream {
    const key = streamKey(space, group, sequence)
    let stream = this.streams.get(key)
    if (stream === undefined) {
      stream = createStream(this, space, group, sequence)
      this.streams.set(key, stream)
      if (space === spaces.message) this.#retirement.onOpened()
    }
    return stream
  }

  /** Moves what can move; returns whether anything did. A link that cannot continue is lost. */
  move(): boolean {
    if (this.failure !== undefined) return false
    try {
      let moved = this.hasOutgoing && this.#writer.flush()
      if (this.#reader.read()) moved = true
      if (this.#gets?.isEmpty === false) {
        this.#gets.advance()
        moved = true
      }
      return moved
    } catch (cause) {
      this.#fail(cause)
      return true
    }
  }

  /** Releases a transfer whose operation has failed; a payload that still comes is discarded. */
  cancel(transfer: Transfer): void {
    transfer.cancelled = true
    this.receives.cancel(transfer)
    this.#try(() => {
      this.sends.cancel(transfer)
    })
  }

  /** Drops a collective's stream. Returns the first message that nobody received. */
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

  /** Asks whether the peer runs the same collective. */
  inquire(address: StreamAddress, fingerprint: Fingerprint): void {
    this.#try(() => {
      this.#writer.write(frameKinds.inquiry, address, { ...NO_MESSAGE, fingerprint })
    })
  }

  /** Tells the peer that its operation cannot finish here. */
  sendFault(address: StreamAddress, payload: Uint8Array): void {
    this.#try(() => {
      this.#writer.writeText(frameKinds.fault, address, payload)
    })
  }

  /** Tells the peer's observer something. */
  sendNotice(address: StreamAddress, payload: Uint8Array): void {
    try {
      this.#writer.writeText(frameKinds.notice, address, payload)
    } catch {
      // There is no room: the engine works without notices.
    }
  }

  sayGoodbye(): void {
    if (this.#saidGoodbye || this.closed !== undefined) return
    this.#saidGoodbye = true
    this.#try(() => {
      this.#writer.writeBare(frameKinds.close)
    })
    // Later frames would arrive at a closed connection, and break it before all was read.
    this.#writer.end()
  }

  #onFrame(header: FrameHeader): Destination | undefined {
    this.#writer.onCredit(header.credit)
    const { kind, space, group, sequence, index, fingerprint, bytes } = header
    if (opening.has(kind) && this.#events.hasLeft(group)) return this.receives.discardFrame(header)
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
        if (header.guard !== 0) this.#gets?.onWithdrawn(header.guard)
        else this.receives.onWithdrawn(this.streams.get(streamKey(space, group, sequence)), index)
        return undefined
      case frameKinds.retire:
        if (!this.#events.hasLeft(group)) this.#retirement.onRetire(header)
        return undefined
      case frameKinds.retired:
        this.receives.clearHeld(this.#retirement.onRetired(header))
        return undefined
      case frameKinds.inquiry:
        // A stream that is over is not opened again.
        this.#events.onUnexpected(createStream(this, space, group, sequence), fingerprint)
        return undefined
      case frameKinds.fault:
        return this.#onText(header, this.#events.onFault)
      case frameKinds.notice:
        return this.#onText(header, this.#events.onNotice)
      case frameKinds.close:
        this.#close('left')
        return undefined
      default:
        return undefined
    }
  }

  #onText(header: FrameHeader, onText: LinkEvents['onFault']): Destination {
    const block = this.#memory.takeFrameBlock(header.bytes)
    const at = block + HEADER_BYTES
    return {
      at,
      onArrived: () => {
        const payload = this.#memory.heap.bytes.slice(at, at + header.bytes)
        this.#memory.giveFrameBlock(block, header.bytes)
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

  /** Without room for its frames a link cannot continue: missing frames would confuse the peer. */
  #fail(cause: unknown): void {
    this.failure ??= cause
    this.#writer.discard()
    this.#transport.closePeer(this.peer)
    this.#close('lost')
  }

  #close(how: 'lost' | 'left'): void {
    if (this.closed !== undefined) return
    this.closed = how
    this.#writer.end()
    if (how === 'left') {
      // By this the peer sees that all it sent was read.
      this.#writer.discard()
      this.#transport.closePeer(this.peer)
    }
    this.#events.onClosed(this)
  }
}
