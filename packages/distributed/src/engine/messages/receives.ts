import { sameFingerprint, type Fingerprint } from '../../operation.ts'
import { EAGER_LIMIT, frameKinds, HEADER_BYTES, type FrameHeader } from './frame.ts'
import type { Destination } from './frame-reader.ts'
import type { FrameWriter } from './frame-writer.ts'
import type { Gets } from './gets.ts'
import type { EngineMemory } from './memory.ts'
import {
  takeIndex,
  type MessageFacts,
  type Stream,
  type StreamEvents,
  type Transfer,
  type Unexpected,
} from './stream.ts'

export type Receives = ReturnType<typeof createReceives>

/**
 * Matches the incoming messages of one link with posted receives.
 * @param gets - copies payloads from the peer's heap; undefined if the peer shares no memory
 */
export function createReceives(
  writer: FrameWriter,
  memory: EngineMemory,
  events: StreamEvents,
  gets: Gets | undefined,
) {
  /** Receives for which the peer may send data, but no data has arrived yet. */
  const cleared = new Set<Transfer>()
  let arriving: { readonly receive: Transfer; readonly destination: Destination } | undefined

  /** Starts a receive, which may complete before this returns. */
  const start = (transfer: Transfer): void => {
    const { stream, index } = transfer
    const early = takeIndex(stream.unexpected, index)
    if (early === undefined) {
      stream.receives.push(transfer)
      if (transfer.bytes <= EAGER_LIMIT || gets !== undefined) return
      if (stream.held === undefined) clear(transfer)
      else stream.held.push(transfer)
    } else if (transfer.cancelled) {
      discard(early)
      if (early.at < 0 && early.exposed === undefined) {
        stream.receives.push(transfer)
        writer.write(frameKinds.clearToSend, stream, early)
      }
    } else if (!fits(transfer, early)) {
      discard(early)
      transfer.onMismatch(early.fingerprint)
    } else if (early.exposed !== undefined) {
      gets!.start(transfer, early.exposed)
    } else if (early.at < 0) {
      stream.receives.push(transfer)
      clear(transfer)
    } else {
      memory.copy(transfer.at, early.at, early.bytes)
      discard(early)
      transfer.onStarted()
      transfer.onDone()
    }
  }

  const clear = (receive: Transfer): void => {
    cleared.add(receive)
    writer.write(frameKinds.clearToSend, receive.stream, receive)
  }

  /** Discards a message that arrived without a receive. */
  const discard = ({ at, bytes, exposed }: Unexpected): void => {
    if (exposed !== undefined) gets!.refuse(exposed)
    if (at < 0) return
    memory.giveFrameBlock(at - HEADER_BYTES, bytes)
    writer.consume(bytes)
  }

  const announce = (stream: Stream, index: number, fingerprint: Fingerprint): void => {
    stream.noteArrival(index)
    events.onUnexpected(stream, fingerprint)
  }

  const keep = (stream: Stream, { index, fingerprint, bytes }: FrameHeader): Destination => {
    const at = memory.takeFrameBlock(bytes) + HEADER_BYTES
    stream.arriving++
    return {
      at,
      onArrived: () => {
        stream.arriving--
        stream.unexpected.push({ index, fingerprint, at, bytes })
        if (index >= stream.nextReceive) announce(stream, index, fingerprint)
        else matchLate(stream, index)
      },
    }
  }

  /** Matches a message with a receive that was posted while the payload arrived. */
  const matchLate = (stream: Stream, index: number): void => {
    const receive = takeIndex(stream.receives, index)
    if (receive?.cancelled === false) {
      cleared.delete(receive)
      start(receive)
    } else {
      const late = takeIndex(stream.unexpected, index)
      if (late !== undefined) discard(late)
    }
  }

  const arrive = (receive: Transfer, onArrived?: () => void): Destination => {
    if (!receive.cancelled) receive.onStarted()
    const destination: Destination = {
      at: receive.cancelled ? undefined : receive.at,
      onArrived: () => {
        arriving = undefined
        onArrived?.()
        if (!receive.cancelled) receive.onDone()
      },
    }
    arriving = { receive, destination }
    return destination
  }

  return {
    /** Whether data for a posted receive may arrive next. */
    get expectsData(): boolean {
      return cleared.size > 0
    },
    start,
    /** Sends the clear-to-send of a large receive that waited for the answer to `retire`. */
    clear,
    discard,
    /** Discards a frame of a group that this rank has destroyed, without opening a stream. */
    discardFrame({ kind, bytes, place, guard }: FrameHeader): Destination | undefined {
      if (kind === frameKinds.exposed) {
        gets?.onExposed({ place, guard })
        gets?.refuse({ place, guard })
      }
      if (kind !== frameKinds.eager && kind !== frameKinds.data) return undefined
      const onArrived = (): void => {
        if (kind === frameKinds.eager) writer.consume(bytes)
      }
      return { at: undefined, onArrived }
    },
    /** Cancels a receive. Data that still arrives for it is discarded. */
    cancel(transfer: Transfer): void {
      cleared.delete(transfer)
      if (arriving?.receive === transfer) arriving.destination.at = undefined
    },
    /** Handles a message that the peer sends after a clear-to-send. */
    onRequestToSend(stream: Stream, requested: Unexpected): void {
      const { index, fingerprint } = requested
      const receive = stream.receives.find((posted) => posted.index === index)
      if (receive === undefined) {
        if (index < stream.nextReceive) return
        stream.unexpected.push(requested)
        announce(stream, index, fingerprint)
      } else if (receive.cancelled) {
        // Clear the send, to discard the data on arrival. A large receive was already cleared when
        // it was posted.
        if (receive.bytes <= EAGER_LIMIT) {
          writer.write(frameKinds.clearToSend, stream, requested)
        }
      } else if (!fits(receive, requested)) {
        takeIndex(stream.receives, index)
        cleared.delete(receive)
        receive.onMismatch(fingerprint)
      } else if (receive.bytes <= EAGER_LIMIT) {
        clear(receive)
      }
    },
    /** Handles a message that this rank can copy from the peer's heap. */
    onExposed(stream: Stream, header: FrameHeader): void {
      if (gets === undefined) return
      const { index, fingerprint, bytes, place, guard } = header
      const exposed = { place, guard }
      gets.onExposed(exposed)
      const receive = takeIndex(stream.receives, index)
      if (receive !== undefined) {
        if (!receive.cancelled && fits(receive, header)) {
          gets.start(receive, exposed)
          return
        }
        gets.refuse(exposed)
        if (!receive.cancelled) receive.onMismatch(fingerprint)
      } else if (index < stream.nextReceive) {
        gets.refuse(exposed)
      } else {
        stream.unexpected.push({ index, fingerprint, at: -1, bytes, exposed })
        announce(stream, index, fingerprint)
      }
    },
    onEager(stream: Stream, header: FrameHeader): Destination {
      const { index, fingerprint, bytes } = header
      const receive = takeIndex(stream.receives, index)
      if (receive === undefined) return keep(stream, header)
      cleared.delete(receive)
      const onArrived = (): void => {
        writer.consume(bytes)
      }
      if (fits(receive, header)) return arrive(receive, onArrived)
      if (!receive.cancelled) receive.onMismatch(fingerprint)
      return { at: undefined, onArrived }
    },
    onData(stream: Stream, header: FrameHeader): Destination {
      const receive = takeIndex(stream.receives, header.index)
      if (receive !== undefined) {
        cleared.delete(receive)
        if (receive.cancelled || fits(receive, header)) return arrive(receive)
        receive.onMismatch(header.fingerprint)
      }
      return { at: undefined, onArrived: () => undefined }
    },
    /** Handles a message that the peer withdraws after the clear-to-send. */
    onWithdrawn(stream: Stream | undefined, index: number): void {
      const receive = stream && takeIndex(stream.receives, index)
      if (receive === undefined || receive.cancelled) return
      cleared.delete(receive)
      receive.onWithdrawn()
    },
  }
}

function fits(receive: Transfer, message: Pick<MessageFacts, 'fingerprint' | 'bytes'>): boolean {
  return (
    sameFingerprint(receive.fingerprint, message.fingerprint) && receive.bytes === message.bytes
  )
}
