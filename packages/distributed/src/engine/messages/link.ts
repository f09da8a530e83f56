import type { Fingerprint } from '../../operation.ts'
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
import { FrameWriter, NO_MESSAGE, type LinkTraffic } from './frame-writer.ts'
import { createGets } from './gets.ts'
import type { EngineMemory } from './memory.ts'
import { createReceives } from './receives.ts'
import { createRetirement } from './retirement.ts'
import { createSends } from './sends.ts'
import { Stream, streamKey, type StreamEvents, type Transfer } from './stream.ts'

/** Events of a link for the engine. Events of one message go to its `Transfer` instead. */
export interface LinkEvents extends StreamEvents {
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

export type Link = ReturnType<typeof createLink>

/** Creates the link to one peer: the messages to and from it, and the frames that carry them. */
export function createLink(
  peer: number,
  transport: Transport,
  memory: EngineMemory,
  events: LinkEvents,
) {
  const streams = new Map<number, Stream>()
  const traffic: LinkTraffic = { bytesSent: 0, bytesReceived: 0, framesSent: 0 }
  /** Whether this rank and the peer copy large messages from heap to heap. */
  const sharesMemory = transport.sharesMemory?.(peer) === true
  const mail = transport.mail?.(peer)
  const view = new DataView(memory.heap.bytes.buffer)
  const writer = new FrameWriter(transport, memory, peer, traffic)
  const gets = sharesMemory ? createGets(transport, memory, peer, writer, traffic) : undefined
  const sends = createSends(writer, memory, events, traffic, sharesMemory)
  const receives = createReceives(writer, memory, events, gets)
  const retirement = createRetirement(writer, streams)
  let saidGoodbye = false
  let sentGarbage = false

  const wantsMail = (): boolean => link.transfers > 0 || events.isAnyAwaited()

  const readMail = (): boolean => {
    const box = mail?.incoming
    if (box?.oldest() === undefined || link.failure !== undefined || !box.tryLock()) return false
    try {
      for (let at = box.oldest(); at !== undefined; at = box.oldest()) {
        const header = readHeader(view, at)
        if (header?.kind !== eager || !isPlausible(header)) {
          sentGarbage = true
          throw new RangeError(link.closeReason)
        }
        const destination = link.onFrame(header)!
        box.take(destination.at, header.bytes)
        destination.onArrived()
      }
    } finally {
      box.unlock()
    }
    return true
  }

  const takeText = (header: FrameHeader, onText: LinkEvents['onFault']): Destination => {
    const block = memory.takeFrameBlock(header.bytes)
    const at = block + HEADER_BYTES
    return {
      at,
      onArrived: () => {
        const payload = memory.heap.bytes.slice(at, at + header.bytes)
        memory.giveFrameBlock(block, header.bytes)
        onText(link, header, payload)
      },
    }
  }

  const attempt = (action: () => void): void => {
    try {
      action()
    } catch (cause) {
      fail(cause)
    }
  }

  /**
   * Closes a link if there is no memory for a frame. The peer could not interpret a stream with
   * missing frames.
   */
  const fail = (cause: unknown): void => {
    link.failure ??= cause
    writer.discard()
    transport.closePeer(peer)
    link.close('lost')
  }

  const link = {
    peer,
    streams,
    traffic,
    sends,
    receives,
    sharesMemory,
    mail,
    /** Number of pending messages on this link that an operation waits for. */
    transfers: 0,
    /** Why the link is closed; undefined while the link is open. */
    closed: undefined as 'lost' | 'left' | undefined,
    /** The error because of which this side closed the link. */
    failure: undefined as unknown,
    get hasOutgoing(): boolean {
      return !writer.isEmpty
    },
    /** Whether the link expects to send or receive data. */
    get isBusy(): boolean {
      return link.transfers > 0 || link.hasOutgoing
    },
    get closeReason(): string {
      return sentGarbage ? 'it sent bytes that are no frame' : transport.closeReason(peer)
    },
    stream(space: number, group: number, sequence: number): Stream {
      const key = streamKey(space, group, sequence)
      let stream = streams.get(key)
      if (stream === undefined) {
        stream = new Stream(link, space, group, sequence)
        streams.set(key, stream)
        if (space === spaces.message) retirement.onOpened()
      }
      return stream
    },
    /**
     * Moves available data, and returns whether anything moved. A link that cannot continue is lost.
     */
    move(): boolean {
      if (link.failure !== undefined) return false
      try {
        let moved = link.hasOutgoing && writer.flush()
        if (wantsMail() && readMail()) moved = true
        if (reader.read()) moved = true
        if (gets?.isEmpty() === false) {
          gets.advance()
          moved = true
        }
        if (mail !== undefined) mail.incoming.isWanted = wantsMail()
        return moved
      } catch (cause) {
        fail(cause)
        return true
      }
    },
    /** Releases the transfer of a failed operation. A payload that still arrives is discarded. */
    cancel(transfer: Transfer): void {
      transfer.cancelled = true
      receives.cancel(transfer)
      attempt(() => {
        sends.cancel(transfer)
      })
    },
    /**
     * Drops the stream of a collective. Returns the fingerprint of the first message that has no
     * receive, if any.
     */
    closeStream({ key, unexpected }: Stream): Fingerprint | undefined {
      streams.delete(key)
      if (unexpected.length > 0)
        attempt(() => {
          unexpected.forEach(receives.discard)
        })
      return unexpected[0]?.fingerprint
    },
    closeStreams(group: number): void {
      for (const stream of [...streams.values()]) {
        if (stream.group === group) link.closeStream(stream)
      }
    },
    /** Asks the peer whether it runs the same collective. */
    inquire(address: StreamAddress, fingerprint: Fingerprint): void {
      attempt(() => {
        writer.write(frameKinds.inquiry, address, { ...NO_MESSAGE, fingerprint })
      })
    },
    /** Tells the peer that an operation cannot finish on this rank. */
    sendFault(address: StreamAddress, payload: Uint8Array): void {
      attempt(() => {
        writer.writeText(frameKinds.fault, address, payload)
      })
    },
    /** Sends a notice to the diagnosis code of the peer. */
    sendNotice(address: StreamAddress, payload: Uint8Array): void {
      try {
        writer.writeText(frameKinds.notice, address, payload)
      } catch {
        // Drop the notice if there is no memory. The engine does not need it.
      }
    },
    sayGoodbye(): void {
      if (saidGoodbye || link.closed !== undefined) return
      saidGoodbye = true
      attempt(() => {
        writer.writeBare(frameKinds.close)
      })
      // Later frames would reach a closed connection, which could reset it before the peer has read
      // everything.
      writer.end()
    },
    /** Handles a stream that contains something other than a frame, and is then unusable. */
    onGarbage(): void {
      sentGarbage = true
      transport.closePeer(peer)
    },
    /** Handles a header. Returns the destination of its payload; undefined if there is no payload. */
    onFrame(header: FrameHeader): Destination | undefined {
      writer.onCredit(header.credit)
      const { kind, space, group, sequence, index, fingerprint, bytes } = header
      if (opening.has(kind) && events.hasLeft(group)) return receives.discardFrame(header)
      switch (kind) {
        case frameKinds.eager:
          return receives.onEager(link.stream(space, group, sequence), header)
        case frameKinds.data:
          return receives.onData(link.stream(space, group, sequence), header)
        case frameKinds.requestToSend: {
          const requested = { index, fingerprint, at: -1, bytes }
          receives.onRequestToSend(link.stream(space, group, sequence), requested)
          return undefined
        }
        case frameKinds.clearToSend: {
          const cleared = { index, fingerprint, bytes }
          sends.onClearToSend(link.stream(space, group, sequence), cleared)
          return undefined
        }
        case frameKinds.exposed:
          receives.onExposed(link.stream(space, group, sequence), header)
          return undefined
        case frameKinds.getDone:
          sends.onGetDone(header.guard)
          return undefined
        case frameKinds.withdrawn:
          if (header.guard !== 0) gets?.onWithdrawn(header.guard)
          else receives.onWithdrawn(streams.get(streamKey(space, group, sequence)), index)
          return undefined
        case frameKinds.retire:
          if (!events.hasLeft(group)) retirement.onRetire(header)
          return undefined
        case frameKinds.retired:
          retirement.onRetired(header).forEach(receives.clear)
          return undefined
        case frameKinds.inquiry:
          // Use a temporary stream: the stream of the peer's collective may be completed, and must
          // not be reopened.
          events.onUnexpected(new Stream(link, space, group, sequence), fingerprint)
          return undefined
        case frameKinds.fault:
          // The peer has posted its messages before.
          readMail()
          return takeText(header, events.onFault)
        case frameKinds.notice:
          return takeText(header, events.onNotice)
        case frameKinds.close:
          link.close('left')
          return undefined
        default:
          return undefined
      }
    },
    close(how: 'lost' | 'left'): void {
      if (link.closed !== undefined) return
      readMail()
      link.closed = how
      writer.end()
      if (how === 'left') {
        // Closing tells the peer that this rank has read everything.
        writer.discard()
        transport.closePeer(peer)
      }
      events.onClosed(link)
    },
  }
  const reader = new FrameReader(transport, memory, link)
  return link
}
