import { EAGER_LIMIT, type EngineMemory } from './engine-memory.ts'
import { frameKinds, HEADER_BYTES, type FrameHeader } from './frame.ts'
import type { Frames } from './frames.ts'
import type { Destination } from './inbound.ts'
import type { LinkEvents } from './link.ts'
import { sameFingerprint } from '../operation.ts'
import type { Pulls } from './pulls.ts'
import { takeIndex, type Stream, type Unexpected } from './stream.ts'
import type { Transfer } from './transfer.ts'

/** The incoming messages of one link, matched with the receives that are posted for them. */
export class Receives {
  readonly #frames: Frames
  readonly #memory: EngineMemory
  readonly #events: LinkEvents
  /** Where the peer shares memory. */
  readonly #pulls: Pulls | undefined
  /** Receives that were cleared, and whose data has not begun to come. */
  readonly #cleared = new Set<Transfer>()
  /** The receive whose payload is coming in. */
  #arriving: { readonly receive: Transfer; readonly destination: Destination } | undefined

  constructor(frames: Frames, memory: EngineMemory, events: LinkEvents, pulls: Pulls | undefined) {
    this.#frames = frames
    this.#memory = memory
    this.#events = events
    this.#pulls = pulls
  }

  /** Whether data may come next for which there is a place. */
  get expectsData(): boolean {
    return this.#cleared.size > 0
  }

  /** Starts a receive; it may be done when this returns. */
  start(transfer: Transfer): void {
    const { stream, index } = transfer
    const early = takeIndex(stream.unexpected, index)
    if (early === undefined) {
      stream.receives.push(transfer)
      if (transfer.bytes <= EAGER_LIMIT || this.#pulls !== undefined) return
      if (stream.held === undefined) this.#clear(transfer)
      else stream.held.push(transfer)
    } else if (transfer.cancelled) {
      this.discard([early])
      if (early.at < 0 && early.offer === undefined) {
        stream.receives.push(transfer)
        this.#frames.write(frameKinds.clear, stream, early)
      }
    } else if (!fits(transfer, early)) {
      this.discard([early])
      this.#events.onMismatch(stream, early.fingerprint, transfer)
    } else if (early.offer !== undefined) {
      this.#pulls!.start(transfer, early.offer)
    } else if (early.at < 0) {
      stream.receives.push(transfer)
      this.#clear(transfer)
    } else {
      this.#memory.copy(transfer.at, early.at, early.bytes)
      this.discard([early])
      this.#events.onStarted(transfer)
      this.#events.onDone(transfer)
    }
  }

  /** Large receives whose clearance had to wait. */
  clearHeld(receives: readonly Transfer[]): void {
    for (const receive of receives) this.#clear(receive)
  }

  /** A frame of a group that this rank has left: it must not open a stream. */
  throwAway({ kind, bytes, place, guard }: FrameHeader): Destination | undefined {
    if (kind === frameKinds.offer) {
      this.#pulls?.note({ place, guard })
      this.#pulls?.refuse({ place, guard })
    }
    if (kind !== frameKinds.eager && kind !== frameKinds.data) return undefined
    const onArrived = (): void => {
      if (kind === frameKinds.eager) this.#frames.consume(bytes)
    }
    return { at: undefined, onArrived }
  }

  /** What still comes for this receive is thrown away. */
  cancel(transfer: Transfer): void {
    this.#cleared.delete(transfer)
    if (this.#arriving?.receive === transfer) this.#arriving.destination.at = undefined
  }

  /** Throws away what came for nobody. */
  discard(unexpected: readonly Unexpected[]): void {
    for (const { at, bytes, offer } of unexpected) {
      if (offer !== undefined) this.#pulls!.refuse(offer)
      if (at < 0) continue
      this.#memory.giveFrameBlock(at - HEADER_BYTES, bytes)
      this.#frames.consume(bytes)
    }
  }

  /** A message waits at the peer until it is cleared. */
  onAnnounce(stream: Stream, announced: Unexpected): void {
    const { index, fingerprint } = announced
    const receive = stream.receives.find((posted) => posted.index === index)
    if (receive === undefined) {
      if (index < stream.nextReceive) return
      stream.unexpected.push(announced)
      this.#events.onUnexpected(stream, fingerprint)
    } else if (receive.cancelled) {
      // let it come, to be thrown away; a large receive was cleared when it was posted
      if (receive.bytes <= EAGER_LIMIT) this.#frames.write(frameKinds.clear, stream, announced)
    } else if (!fits(receive, announced)) {
      takeIndex(stream.receives, index)
      this.#cleared.delete(receive)
      this.#events.onMismatch(stream, fingerprint, receive)
    } else if (receive.bytes <= EAGER_LIMIT) {
      this.#clear(receive)
    }
  }

  /** A message can be copied out of the peer's heap. */
  onOffer(stream: Stream, { index, fingerprint, bytes, place, guard }: FrameHeader): void {
    const pulls = this.#pulls
    if (pulls === undefined) return
    const offer = { place, guard }
    pulls.note(offer)
    const receive = takeIndex(stream.receives, index)
    if (receive !== undefined) {
      if (!receive.cancelled && fits(receive, { fingerprint, bytes })) {
        pulls.start(receive, offer)
        return
      }
      pulls.refuse(offer)
      if (!receive.cancelled) this.#events.onMismatch(stream, fingerprint, receive)
    } else if (index < stream.nextReceive) {
      pulls.refuse(offer)
    } else {
      stream.unexpected.push({ index, fingerprint, at: -1, bytes, offer })
      this.#events.onUnexpected(stream, fingerprint)
    }
  }

  /** A small message comes. */
  onEager(stream: Stream, header: FrameHeader): Destination {
    const { index, fingerprint, bytes } = header
    const receive = takeIndex(stream.receives, index)
    if (receive === undefined) return this.#keep(stream, header)
    this.#cleared.delete(receive)
    const onArrived = (): void => {
      this.#frames.consume(bytes)
    }
    if (fits(receive, header)) return this.#arrive(receive, onArrived)
    if (!receive.cancelled) this.#events.onMismatch(stream, fingerprint, receive)
    return { at: undefined, onArrived }
  }

  /** The payload of a cleared message comes. */
  onData(stream: Stream, header: FrameHeader): Destination {
    const receive = takeIndex(stream.receives, header.index)
    if (receive === undefined) return { at: undefined, onArrived: () => undefined }
    this.#cleared.delete(receive)
    if (!receive.cancelled && !fits(receive, header)) {
      this.#events.onMismatch(stream, header.fingerprint, receive)
      return { at: undefined, onArrived: () => undefined }
    }
    return this.#arrive(receive, () => undefined)
  }

  /** The peer has given up a message that was cleared. */
  onWithdrawn(stream: Stream | undefined, index: number): void {
    const receive = stream && takeIndex(stream.receives, index)
    if (receive === undefined || receive.cancelled) return
    this.#cleared.delete(receive)
    this.#events.onWithdrawn(receive)
  }

  #clear(receive: Transfer): void {
    this.#cleared.add(receive)
    this.#frames.write(frameKinds.clear, receive.stream, receive)
  }

  /** Stores a small message that nobody waits for. */
  #keep(stream: Stream, { index, fingerprint, bytes }: FrameHeader): Destination {
    const at = this.#memory.takeFrameBlock(bytes) + HEADER_BYTES
    stream.coming++
    return {
      at,
      onArrived: () => {
        stream.coming--
        stream.unexpected.push({ index, fingerprint, at, bytes })
        if (index >= stream.nextReceive) this.#events.onUnexpected(stream, fingerprint)
        else this.#matchLate(stream, index)
      },
    }
  }

  /** The receive was posted while the payload came in: it is matched now. */
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
}

function fits(receive: Transfer, message: Pick<Unexpected, 'fingerprint' | 'bytes'>): boolean {
  return (
    sameFingerprint(receive.fingerprint, message.fingerprint) && receive.bytes === message.bytes
  )
}
