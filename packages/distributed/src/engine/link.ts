import type { TsrError } from '@tsrun/core'
import type { Transport } from '../transports/transport.ts'
import type { EngineMemory } from './engine-memory.ts'
import { Forgetting } from './forgetting.ts'
import { frameKinds, HEADER_BYTES, spaces, type FrameHeader } from './frame.ts'
import { Frames, type Address } from './frames.ts'
import { Inbound, type Destination } from './inbound.ts'
import type { Fingerprint } from '../operation.ts'
import { Offers } from './offers.ts'
import { Outbound } from './outbound.ts'
import { isPlausible } from './plausible.ts'
import { Pulls } from './pulls.ts'
import { Receives } from './receives.ts'
import { Sends } from './sends.ts'
import { createStream, streamKey, type Stream } from './stream.ts'
import { thrownError } from './task-errors.ts'
import type { Transfer } from './transfer.ts'

/** What the link tells the engine. */
export interface LinkEvents {
  onDone(transfer: Transfer): void
  /** The first byte of a message moved. */
  onStarted(transfer: Transfer): void
  onMismatch(stream: Stream, theirs: Fingerprint, transfer: Transfer | undefined): void
  /** A message came for which nothing waits: compare it with what runs, or ran, there. */
  onUnexpected(stream: Stream, theirs: Fingerprint): void
  /** The peer has given up the message that this receive waits for. */
  onWithdrawn(transfer: Transfer): void
  readonly onFault: (link: Link, header: FrameHeader, payload: Uint8Array) => void
  readonly onNotice: LinkEvents['onFault']
  /** Whether this rank has left the group for good: what comes for it is thrown away. */
  hasLeft(group: number): boolean
  onClosed(link: Link): void
}

/** Frames that may open a stream. */
const { eager, announce, clear, data, offer } = frameKinds
const opening: ReadonlySet<number> = new Set([eager, announce, clear, data, offer])

/** Messages to and from one peer, and the frames that carry them. */
export class Link {
  readonly peer: number
  readonly outbound: Outbound
  readonly inbound: Inbound
  readonly streams = new Map<number, Stream>()
  transfers = 0
  /** Why messages can't be exchanged any more; undefined while they can. */
  closed: 'lost' | 'left' | undefined
  /** Why this side had to give the link up. */
  failure: TsrError | undefined
  readonly #transport: Transport
  readonly #memory: EngineMemory
  readonly #events: LinkEvents
  readonly #frames: Frames
  readonly #sends: Sends
  readonly #receives: Receives
  readonly #forgetting: Forgetting
  /** Where the peer shares memory. */
  readonly #offers: Offers | undefined
  readonly #pulls: Pulls | undefined
  #saidGoodbye = false
  #sentGarbage = false

  constructor(peer: number, transport: Transport, memory: EngineMemory, events: LinkEvents) {
    this.peer = peer
    this.#transport = transport
    this.#memory = memory
    this.#events = events
    this.outbound = new Outbound(transport, memory, peer, (transfer) => {
      events.onDone(transfer)
    })
    this.#frames = new Frames(this.outbound)
    if (transport.sharesMemory?.(peer) === true) {
      const count = (bytes: number): void => {
        this.outbound.bytesSent += bytes
      }
      this.#offers = new Offers(this.#frames, memory, events, count)
      this.#pulls = new Pulls(peer, transport, memory, this.#frames, events, (bytes) => {
        this.inbound.bytesReceived += bytes
      })
    }
    this.#sends = new Sends(this.#frames, events, this.#offers)
    this.#receives = new Receives(this.#frames, memory, events, this.#pulls)
    this.#forgetting = new Forgetting(this.#frames, this.streams)
    this.inbound = new Inbound(transport, memory, peer, {
      isPlausible,
      onFrame: (header) => this.#onFrame(header),
      onGarbage: () => {
        this.#sentGarbage = true
        transport.closePeer(peer)
      },
      onClosed: () => {
        this.#close('lost')
      },
      expectsPayload: () => this.#receives.expectsData,
    })
  }

  /** Whether large messages are copied from heap to heap. */
  get sharesMemory(): boolean {
    return this.#pulls !== undefined
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
      if (space === spaces.message) this.#forgetting.onOpened()
    }
    return stream
  }

  /** Starts a send; it may be done when this returns. */
  send(transfer: Transfer): void {
    this.#sends.start(transfer)
  }

  receive(transfer: Transfer): void {
    this.#receives.start(transfer)
  }

  get isBusy(): boolean {
    return this.transfers > 0 || !this.outbound.isEmpty
  }

  /** Moves what can move; whether anything did. A link that cannot go on is lost. */
  move(): boolean {
    if (this.failure !== undefined) return false
    try {
      let moved = !this.outbound.isEmpty && this.outbound.flush()
      if (this.inbound.pull()) moved = true
      if (this.#pulls?.isEmpty === false) {
        this.#pulls.advance()
        moved = true
      }
      return moved
    } catch (cause) {
      this.#fail(cause)
      return true
    }
  }

  /** Lets go of a transfer whose operation failed; a payload that still comes is thrown away. */
  cancel(transfer: Transfer): void {
    transfer.cancelled = true
    this.#receives.cancel(transfer)
    this.#try(() => {
      this.#sends.cancel(transfer)
    })
  }

  /** Forgets a collective's stream. Returns messages that nobody took, for the mismatch report. */
  closeStream(stream: Stream): Fingerprint | undefined {
    this.streams.delete(stream.key)
    if (stream.unexpected.length > 0) {
      this.#try(() => {
        this.#receives.discard(stream.unexpected)
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
  inquire({ stream, fingerprint }: { stream: Address; fingerprint: Fingerprint }): void {
    this.#try(() => {
      this.#frames.write(frameKinds.inquiry, stream, { index: 0, fingerprint, bytes: 0 })
    })
  }

  /** Tells the peer that its operation cannot finish here. */
  sendFault(address: Address, payload: Uint8Array): void {
    this.#try(() => {
      this.#frames.writeText(frameKinds.fault, address, payload)
    })
  }

  sendNotice(address: Address, payload: Uint8Array): void {
    try {
      this.#frames.writeText(frameKinds.notice, address, payload)
    } catch {
      // no room: it was for people only
    }
  }

  sayGoodbye(): void {
    if (this.#saidGoodbye || this.closed !== undefined) return
    this.#saidGoodbye = true
    this.#try(() => {
      this.#frames.writeBare(frameKinds.goodbye)
    })
    // what came after it would meet a closed connection there, and break it before all was read
    this.#frames.end()
  }

  #onFrame(header: FrameHeader): Destination | undefined {
    this.#frames.onCredit(header.credit)
    const { kind, space, group, sequence, index, fingerprint, bytes } = header
    if (opening.has(kind) && this.#events.hasLeft(group)) return this.#receives.throwAway(header)
    switch (kind) {
      case frameKinds.eager:
        return this.#receives.onEager(this.stream(space, group, sequence), header)
      case frameKinds.data:
        return this.#receives.onData(this.stream(space, group, sequence), header)
      case frameKinds.announce: {
        const announced = { index, fingerprint, at: -1, bytes }
        this.#receives.onAnnounce(this.stream(space, group, sequence), announced)
        return undefined
      }
      case frameKinds.clear:
        this.#sends.onClear(this.stream(space, group, sequence), { index, fingerprint, bytes })
        return undefined
      case frameKinds.offer:
        this.#receives.onOffer(this.stream(space, group, sequence), header)
        return undefined
      case frameKinds.fetched:
        this.#offers?.onFetched(header.guard)
        return undefined
      case frameKinds.withdrawn:
        if (header.guard !== 0) {
          this.#pulls?.onWithdrawn(header.guard)
          return undefined
        }
        this.#receives.onWithdrawn(this.streams.get(streamKey(space, group, sequence)), index)
        return undefined
      case frameKinds.forget:
        if (!this.#events.hasLeft(group)) this.#forgetting.onForget(header)
        return undefined
      case frameKinds.forgotten:
        this.#receives.clearHeld(this.#forgetting.onForgotten(header))
        return undefined
      case frameKinds.inquiry:
        // a stream that is over is not opened again
        this.#events.onUnexpected(createStream(this, space, group, sequence), fingerprint)
        return undefined
      case frameKinds.fault:
        return this.#onText(header, this.#events.onFault)
      case frameKinds.notice:
        return this.#onText(header, this.#events.onNotice)
      case frameKinds.goodbye:
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

  /** Without room for its frames a link cannot go on: frames that are left out confuse the peer. */
  #fail(cause: unknown): void {
    this.failure ??= thrownError(cause)
    this.outbound.discard()
    this.#transport.closePeer(this.peer)
    this.#close('lost')
  }

  #close(how: 'lost' | 'left'): void {
    if (this.closed !== undefined) return
    this.closed = how
    this.#frames.end()
    if (how === 'left') {
      // by this the peer sees that all it sent was read
      this.outbound.discard()
      this.#transport.closePeer(this.peer)
    }
    this.#events.onClosed(this)
  }
}
