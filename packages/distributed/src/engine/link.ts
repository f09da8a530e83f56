import type { Transport } from '../transports/transport.ts'
import { Credit } from './credit.ts'
import { EAGER_LIMIT, type EngineMemory } from './engine-memory.ts'
import { frameKinds, HEADER_BYTES, type FrameHeader } from './frame.ts'
import { Inbound, type Destination } from './inbound.ts'
import { sameFingerprint, type Fingerprint } from './operation.ts'
import { Outbound } from './outbound.ts'
import {
  createStream,
  streamKey,
  takeIndex,
  type Clearance,
  type Stream,
  type Unexpected,
} from './stream.ts'
import type { Transfer } from './transfer.ts'

/** What the link tells the engine. */
export interface LinkEvents {
  onDone(transfer: Transfer): void
  /** The first byte of a message moved. */
  onStarted(transfer: Transfer): void
  onMismatch(stream: Stream, theirs: Fingerprint, transfer: Transfer | undefined): void
  /** A message came for which nothing waits: compare it with what runs, or ran, there. */
  onUnexpected(stream: Stream, theirs: Fingerprint): void
  onFault(link: Link, header: FrameHeader, payload: Uint8Array): void
  onClosed(link: Link): void
}

const NOTHING: Fingerprint = { kind: 0, root: 0, count: 0 }

/** Messages to and from one peer: matching, flow control, and the frames that carry them. */
export class Link {
  readonly peer: number
  readonly outbound: Outbound
  readonly inbound: Inbound
  readonly streams = new Map<number, Stream>()
  /** Why messages can't be exchanged any more; undefined while they can. */
  closed: 'lost' | 'left' | undefined
  readonly #transport: Transport
  readonly #memory: EngineMemory
  readonly #events: LinkEvents
  readonly #credit = new Credit()
  /** Large receives whose data has not begun to come. */
  #clearedReceives = 0
  #saidGoodbye = false
  /** The receive whose payload is coming in. */
  #arriving: { readonly receive: Transfer; readonly destination: Destination } | undefined

  constructor(peer: number, transport: Transport, memory: EngineMemory, events: LinkEvents) {
    this.peer = peer
    this.#transport = transport
    this.#memory = memory
    this.#events = events
    this.outbound = new Outbound(transport, memory, peer, (transfer) => {
      events.onDone(transfer)
    })
    this.inbound = new Inbound(transport, memory, peer, {
      onFrame: (header) => this.#onFrame(header),
      onGarbage: () => undefined,
      onClosed: () => {
        this.#close()
      },
      expectsPayload: () => this.#clearedReceives > 0,
    })
  }

  get closeReason(): string {
    return this.#transport.closeReason(this.peer)
  }

  stream(space: number, group: number, sequence: number): Stream {
    const key = streamKey(space, group, sequence)
    let stream = this.streams.get(key)
    if (stream === undefined) {
      stream = createStream(this, space, group, sequence)
      this.streams.set(key, stream)
    }
    return stream
  }

  /** Starts a send; it may be done when this returns. */
  send(transfer: Transfer): void {
    const { stream, index, bytes, fingerprint } = transfer
    if (bytes <= EAGER_LIMIT) {
      const push = (): void => {
        const header = this.#header(frameKinds.eager, stream, index, bytes, fingerprint)
        this.outbound.pushCopied(header, transfer.at)
        this.#events.onDone(transfer)
      }
      this.#credit.spend(bytes, push, () => !transfer.cancelled)
      return
    }
    const clearance = takeIndex(stream.clearances, index)
    if (clearance !== undefined) {
      this.#sendData(transfer, clearance.fingerprint, clearance.bytes)
      return
    }
    stream.sends.push(transfer)
    const push = (): void => {
      this.outbound.pushHeader(this.#header(frameKinds.announce, stream, index, bytes, fingerprint))
    }
    this.#credit.spend(0, push, () => stream.sends.includes(transfer))
  }

  /** Starts a receive; it may be done when this returns. */
  receive(transfer: Transfer): void {
    const { stream, index, bytes, fingerprint } = transfer
    const early = takeIndex(stream.unexpected, index)
    if (early !== undefined) {
      const isEager = early.at >= 0
      if (isEager) this.#memory.giveFrameBlock(early.at - HEADER_BYTES, early.bytes)
      this.#consume(isEager ? early.bytes : 0)
      if (!sameFingerprint(early.fingerprint, fingerprint) || early.bytes !== bytes) {
        this.#events.onMismatch(stream, early.fingerprint, transfer)
        return
      }
      if (isEager) {
        this.#memory.copy(transfer.at, early.at, bytes)
        this.#events.onStarted(transfer)
        this.#events.onDone(transfer)
        return
      }
    }
    stream.receives.push(transfer)
    if (bytes > EAGER_LIMIT) {
      this.#clearedReceives++
      this.outbound.pushHeader(this.#header(frameKinds.clear, stream, index, bytes, fingerprint))
    }
  }

  /** Lets go of a transfer whose operation failed; a payload that still comes is thrown away. */
  cancel(transfer: Transfer): void {
    transfer.cancelled = true
    if (this.#arriving?.receive === transfer) this.#arriving.destination.at = undefined
    takeIndex(transfer.stream.sends, transfer.index)
  }

  /** Forgets a collective's stream. Returns messages that nobody took, for the mismatch report. */
  closeStream(stream: Stream): Fingerprint | undefined {
    this.streams.delete(stream.key)
    const leftover = stream.unexpected[0]?.fingerprint
    for (const { at, bytes } of stream.unexpected) {
      if (at >= 0) this.#memory.giveFrameBlock(at - HEADER_BYTES, bytes)
      this.#consume(at >= 0 ? bytes : 0)
    }
    return leftover
  }

  /** Tells the peer that its operation cannot finish here. */
  sendFault(
    space: number,
    group: number,
    sequence: number,
    payloadAt: number,
    bytes: number,
  ): void {
    if (this.closed !== undefined) return
    this.outbound.pushCopied(
      {
        kind: frameKinds.fault,
        space,
        group,
        sequence,
        index: 0,
        fingerprint: NOTHING,
        bytes,
        credit: this.#credit.tell(),
      },
      payloadAt,
    )
  }

  sayGoodbye(): void {
    if (this.#saidGoodbye || this.closed !== undefined) return
    this.#saidGoodbye = true
    this.outbound.pushHeader(this.#bareHeader(frameKinds.goodbye))
  }

  #onFrame(header: FrameHeader): Destination | undefined {
    this.#credit.update(header.credit)
    const { kind, space, group, sequence, index, fingerprint, bytes } = header
    switch (kind) {
      case frameKinds.eager:
        return this.#onEager(this.stream(space, group, sequence), header)
      case frameKinds.data:
        return this.#onData(this.stream(space, group, sequence), header)
      case frameKinds.announce:
        this.#onAnnounce(this.stream(space, group, sequence), { index, fingerprint, at: -1, bytes })
        return undefined
      case frameKinds.clear:
        this.#onClear(this.stream(space, group, sequence), { index, fingerprint, bytes })
        return undefined
      case frameKinds.fault:
        return this.#onFaultFrame(header)
      case frameKinds.goodbye:
        this.#close('left')
        return undefined
      default:
        return undefined
    }
  }

  #onAnnounce(stream: Stream, announced: Unexpected): void {
    const { index, fingerprint, bytes } = announced
    const receive = stream.receives.find((posted) => posted.index === index)
    if (receive === undefined && index >= stream.nextReceive) {
      stream.unexpected.push(announced)
      this.#events.onUnexpected(stream, fingerprint)
      return
    }
    this.#consume(0)
    if (receive === undefined) return
    if (sameFingerprint(receive.fingerprint, fingerprint) && receive.bytes === bytes) return
    takeIndex(stream.receives, index)
    this.#events.onMismatch(stream, fingerprint, receive)
  }

  #onClear(stream: Stream, clearance: Clearance): void {
    const send = takeIndex(stream.sends, clearance.index)
    if (send !== undefined) {
      this.#sendData(send, clearance.fingerprint, clearance.bytes)
    } else if (clearance.index >= stream.nextSend) {
      stream.clearances.push(clearance)
      this.#events.onUnexpected(stream, clearance.fingerprint)
    }
  }

  #onEager(stream: Stream, header: FrameHeader): Destination {
    const { index, fingerprint, bytes } = header
    const receive = takeIndex(stream.receives, index)
    if (receive === undefined) {
      const block = this.#memory.takeFrameBlock(bytes)
      const at = block + HEADER_BYTES
      return {
        at,
        onArrived: () => {
          if (index < stream.nextReceive) {
            // The receive was posted while the payload came in: it is matched now.
            this.#matchLate(stream, { index, fingerprint, at, bytes })
            return
          }
          stream.unexpected.push({ index, fingerprint, at, bytes })
          this.#events.onUnexpected(stream, fingerprint)
        },
      }
    }
    if (receive.bytes > EAGER_LIMIT) this.#clearedReceives--
    const fits = sameFingerprint(receive.fingerprint, fingerprint) && receive.bytes === bytes
    if (!fits && !receive.cancelled) this.#events.onMismatch(stream, fingerprint, receive)
    if (!fits) {
      return {
        at: undefined,
        onArrived: () => {
          this.#consume(bytes)
        },
      }
    }
    return this.#arrive(receive, () => {
      this.#consume(bytes)
    })
  }

  #matchLate(stream: Stream, early: Stream['unexpected'][number]): void {
    const receive = takeIndex(stream.receives, early.index)
    stream.unexpected.push(early)
    if (receive === undefined) return
    if (receive.bytes > EAGER_LIMIT) this.#clearedReceives--
    this.receive(receive)
  }

  #onData(stream: Stream, { index }: FrameHeader): Destination {
    const receive = takeIndex(stream.receives, index)
    this.#clearedReceives--
    if (receive === undefined) return { at: undefined, onArrived: () => undefined }
    return this.#arrive(receive, () => undefined)
  }

  #arrive(receive: Transfer, onArrived: () => void): Destination {
    if (!receive.cancelled) this.#events.onStarted(receive)
    const destination: Destination = {
      at: receive.cancelled ? undefined : receive.at,
      onArrived: () => {
        this.#arriving = undefined
        onArrived()
        if (!receive.cancelled) this.#events.onDone(receive)
      },
    }
    this.#arriving = { receive, destination }
    return destination
  }

  #onFaultFrame(header: FrameHeader): Destination {
    const block = this.#memory.takeFrameBlock(header.bytes)
    const at = block + HEADER_BYTES
    return {
      at,
      onArrived: () => {
        const payload = this.#memory.heap.bytes.slice(at, at + header.bytes)
        this.#memory.giveFrameBlock(block, header.bytes)
        this.#events.onFault(this, header, payload)
      },
    }
  }

  #sendData(transfer: Transfer, theirs: Fingerprint, bytes: number): void {
    const { stream, index, fingerprint } = transfer
    if (!sameFingerprint(theirs, fingerprint) || bytes !== transfer.bytes) {
      this.#events.onMismatch(stream, theirs, transfer)
      return
    }
    this.#events.onStarted(transfer)
    transfer.leaving = true
    const header = this.#header(frameKinds.data, stream, index, transfer.bytes, fingerprint)
    this.outbound.pushDirect(header, transfer)
  }

  #consume(bytes: number): void {
    if (this.#credit.consume(bytes) && this.closed === undefined) {
      this.outbound.pushHeader(this.#bareHeader(frameKinds.credit))
    }
  }

  #header(
    kind: number,
    { space, group, sequence }: Stream,
    index: number,
    bytes: number,
    fingerprint: Fingerprint,
  ): FrameHeader {
    return { kind, space, group, sequence, index, fingerprint, bytes, credit: this.#credit.tell() }
  }

  #bareHeader(kind: number): FrameHeader {
    return {
      kind,
      space: 0,
      group: 0,
      sequence: 0,
      index: 0,
      fingerprint: NOTHING,
      bytes: 0,
      credit: this.#credit.tell(),
    }
  }

  #close(how: 'lost' | 'left' = 'lost'): void {
    if (this.closed !== undefined) return
    this.closed = how
    this.#events.onClosed(this)
  }
}
