import { sameFingerprint, type Fingerprint } from '../../operation.ts'
import { EAGER_LIMIT, frameKinds, HEADER_BYTES, type FrameHeader } from './frame.ts'
import type { Destination } from './frame-reader.ts'
import type { Link } from './link.ts'
import {
  takeIndex,
  type MessageFacts,
  type Stream,
  type Transfer,
  type Unexpected,
} from './stream.ts'

/** The destination of a payload that is discarded and needs no answer. */
const NOWHERE: Destination = { at: undefined, onArrived: () => undefined }

/** Matches the incoming messages of one link with posted receives. */
export class Receives {
  readonly #link: Link
  /** Receives for which the peer may send data, but no data has arrived yet. */
  readonly #cleared = new Set<Transfer>()
  #arriving: { readonly receive: Transfer; readonly destination: Destination } | undefined

  constructor(link: Link) {
    this.#link = link
  }

  /** Whether data for a posted receive may arrive next. */
  get expectsData(): boolean {
    return this.#cleared.size > 0
  }

  /** Starts a receive, which may complete before this returns. */
  start(transfer: Transfer): void {
    const { stream, index } = transfer
    const early = takeIndex(stream.unexpected, index)
    if (early === undefined) {
      stream.receives.push(transfer)
      if (transfer.bytes <= EAGER_LIMIT || this.#link.gets !== undefined) return
      if (stream.held === undefined) this.#clear(transfer)
      else stream.held.push(transfer)
    } else if (transfer.cancelled) {
      this.discard([early])
      if (early.at < 0 && early.exposed === undefined) {
        stream.receives.push(transfer)
        this.#link.writer.write(frameKinds.clearToSend, stream, early)
      }
    } else if (!fits(transfer, early)) {
      this.discard([early])
      transfer.onMismatch(early.fingerprint)
    } else if (early.exposed !== undefined) {
      this.#link.gets!.start(transfer, early.exposed)
    } else if (early.at < 0) {
      stream.receives.push(transfer)
      this.#clear(transfer)
    } else {
      this.#link.memory.copy(transfer.at, early.at, early.bytes)
      this.discard([early])
      transfer.onStarted()
      transfer.onDone()
    }
  }

  /** Sends the clear-to-send of large receives that waited for the answer to `retire`. */
  clearHeld(receives: readonly Transfer[]): void {
    for (const receive of receives) this.#clear(receive)
  }

  /** Discards a frame of a group that this rank has destroyed, without opening a stream. */
  discardFrame({ kind, bytes, guard }: FrameHeader): Destination | undefined {
    if (kind === frameKinds.exposed) this.#link.gets?.refuse(guard)
    if (kind !== frameKinds.eager && kind !== frameKinds.data) return undefined
    const onArrived = (): void => {
      if (kind === frameKinds.eager) this.#link.writer.consume(bytes)
    }
    return { at: undefined, onArrived }
  }

  /** Cancels a receive. Data that still arrives for it is discarded. */
  cancel(transfer: Transfer): void {
    this.#cleared.delete(transfer)
    if (this.#arriving?.receive === transfer) this.#arriving.destination.at = undefined
  }

  /** Discards messages that arrived without a receive. */
  discard(unexpected: readonly Unexpected[]): void {
    for (const { at, bytes, exposed } of unexpected) {
      if (exposed !== undefined) this.#link.gets!.refuse(exposed.guard)
      if (at < 0) continue
      this.#link.memory.giveFrameBlock(at - HEADER_BYTES, bytes)
      this.#link.writer.consume(bytes)
    }
  }

  /** Handles a message that the peer sends after a clear-to-send. */
  onRequestToSend(stream: Stream, requested: Unexpected): void {
    const { index, fingerprint } = requested
    const receive = stream.receives.find((posted) => posted.index === index)
    if (receive === undefined) {
      if (index < stream.nextReceive) return
      stream.unexpected.push(requested)
      this.#announce(stream, index, fingerprint)
    } else if (receive.cancelled) {
      // Send a clear-to-send, and discard the data on arrival. For a large receive, the
      // clear-to-send was sent earlier.
      if (receive.bytes <= EAGER_LIMIT) {
        this.#link.writer.write(frameKinds.clearToSend, stream, requested)
      }
    } else if (!fits(receive, requested)) {
      takeIndex(stream.receives, index)
      this.#cleared.delete(receive)
      receive.onMismatch(fingerprint)
    } else if (receive.bytes <= EAGER_LIMIT) {
      this.#clear(receive)
    }
  }

  /** Handles a message that this rank can copy from the peer's heap. */
  onExposed(stream: Stream, { index, fingerprint, bytes, place, guard }: FrameHeader): void {
    const gets = this.#link.gets
    if (gets === undefined) return
    const exposed = { place, guard }
    gets.onExposed(exposed)
    const receive = takeIndex(stream.receives, index)
    if (receive !== undefined) {
      if (!receive.cancelled && fits(receive, { fingerprint, bytes })) {
        gets.start(receive, exposed)
        return
      }
      gets.refuse(guard)
      if (!receive.cancelled) receive.onMismatch(fingerprint)
    } else if (index < stream.nextReceive) {
      gets.refuse(guard)
    } else {
      stream.unexpected.push({ index, fingerprint, at: -1, bytes, exposed })
      this.#announce(stream, index, fingerprint)
    }
  }

  onEager(stream: Stream, header: FrameHeader): Destination {
    const { index, fingerprint, bytes } = header
    const receive = takeIndex(stream.receives, index)
    if (receive === undefined) return this.#keep(stream, header)
    this.#cleared.delete(receive)
    const onArrived = (): void => {
      this.#link.writer.consume(bytes)
    }
    if (fits(receive, header)) return this.#arrive(receive, onArrived)
    if (!receive.cancelled) receive.onMismatch(fingerprint)
    return { at: undefined, onArrived }
  }

  onData(stream: Stream, header: FrameHeader): Destination {
    const receive = takeIndex(stream.receives, header.index)
    if (receive === undefined) return NOWHERE
    this.#cleared.delete(receive)
    if (!receive.cancelled && !fits(receive, header)) {
      receive.onMismatch(header.fingerprint)
      return NOWHERE
    }
    return this.#arrive(receive, NOWHERE.onArrived)
  }

  /** Handles a message that the peer withdraws after the clear-to-send. */
  onWithdrawn(stream: Stream | undefined, index: number): void {
    const receive = stream && takeIndex(stream.receives, index)
    if (receive === undefined || receive.cancelled) return
    this.#cleared.delete(receive)
    receive.onWithdrawn()
  }

  #announce(stream: Stream, index: number, fingerprint: Fingerprint): void {
    stream.noteArrival(index)
    this.#link.events.onUnexpected(stream, fingerprint)
  }

  #clear(receive: Transfer): void {
    this.#cleared.add(receive)
    this.#link.writer.write(frameKinds.clearToSend, receive.stream, receive)
  }

  #keep(stream: Stream, { index, fingerprint, bytes }: FrameHeader): Destination {
    const at = this.#link.memory.takeFrameBlock(bytes) + HEADER_BYTES
    stream.arriving++
    return {
      at,
      onArrived: () => {
        stream.arriving--
        stream.unexpected.push({ index, fingerprint, at, bytes })
        if (index >= stream.nextReceive) this.#announce(stream, index, fingerprint)
        else this.#matchLate(stream, index)
      },
    }
  }

  /** Matches a message with a receive that was posted while the payload arrived. */
  #matchLate(stream: Stream, index: number): void {
    const receive = takeIndex(stream.receives, index)
    if (receive?.cancelled === false) {
      this.#cleared.delete(receive)
      this.start(receive)
    } else {
      const late = takeIndex(stream.unexpected, index)
      if (late !== undefined) this.discard([late])
    }
  }

  #arrive(receive: Transfer, onArrived: () => void): Destination {
    if (!receive.cancelled) receive.onStarted()
    const destination: Destination = {
      at: receive.cancelled ? undefined : receive.at,
      onArrived: () => {
        this.#arriving = undefined
        onArrived()
        if (!receive.cancelled) receive.onDone()
      },
    }
    this.#arriving = { receive, destination }
    return destination
  }
}

function fits(receive: Transfer, message: Pick<MessageFacts, 'fingerprint' | 'bytes'>): boolean {
  return (
    sameFingerprint(receive.fingerprint, message.fingerprint) && receive.bytes === message.bytes
  )
}
