import { EAGER_LIMIT, type EngineMemory } from './engine-memory.ts'
import { frameKinds, HEADER_BYTES, type FrameHeader } from './frame.ts'
import type { Frames } from './frames.ts'
import type { Destination } from './inbound.ts'
import type { LinkEvents } from './link.ts'
import { sameFingerprint } from './operation.ts'
import { takeIndex, type Stream, type Unexpected } from './stream.ts'
import type { Transfer } from './transfer.ts'

/** The incoming messages of one link, matched with the receives that are posted for them. */
export class Receives {
  readonly #frames: Frames
  readonly #memory: EngineMemory
  readonly #events: LinkEvents
  /** Large receives whose data has not begun to come. */
  #cleared = 0
  /** The receive whose payload is coming in. */
  #arriving: { readonly receive: Transfer; readonly destination: Destination } | undefined

  constructor(frames: Frames, memory: EngineMemory, events: LinkEvents) {
    this.#frames = frames
    this.#memory = memory
    this.#events = events
  }

  /** Whether the data of a large message may come next. */
  get expectsData(): boolean {
    return this.#cleared > 0
  }

  /** Starts a receive; it may be done when this returns. */
  start(transfer: Transfer): void {
    const { stream, index, bytes, fingerprint } = transfer
    const early = takeIndex(stream.unexpected, index)
    if (early !== undefined) {
      const isEager = early.at >= 0
      if (isEager) this.#memory.giveFrameBlock(early.at - HEADER_BYTES, early.bytes)
      this.#frames.consume(isEager ? early.bytes : 0)
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
      this.#cleared++
      this.#frames.writeHeader(frameKinds.clear, transfer)
    }
  }

  /** What still comes for this receive is thrown away. */
  cancel(transfer: Transfer): void {
    if (this.#arriving?.receive === transfer) this.#arriving.destination.at = undefined
  }

  /** Throws away what nobody took from a stream. */
  discard(unexpected: readonly Unexpected[]): void {
    for (const { at, bytes } of unexpected) {
      if (at >= 0) this.#memory.giveFrameBlock(at - HEADER_BYTES, bytes)
      this.#frames.consume(at >= 0 ? bytes : 0)
    }
  }

  /** A large message waits at the peer. */
  onAnnounce(stream: Stream, announced: Unexpected): void {
    const { index, fingerprint, bytes } = announced
    const receive = stream.receives.find((posted) => posted.index === index)
    if (receive === undefined && index >= stream.nextReceive) {
      stream.unexpected.push(announced)
      this.#events.onUnexpected(stream, fingerprint)
      return
    }
    this.#frames.consume(0)
    if (receive === undefined) return
    if (sameFingerprint(receive.fingerprint, fingerprint) && receive.bytes === bytes) return
    takeIndex(stream.receives, index)
    this.#events.onMismatch(stream, fingerprint, receive)
  }

  /** A small message comes. */
  onEager(stream: Stream, header: FrameHeader): Destination {
    const { index, fingerprint, bytes } = header
    const receive = takeIndex(stream.receives, index)
    if (receive === undefined) return this.#keep(stream, header)
    if (receive.bytes > EAGER_LIMIT) this.#cleared--
    const fits = sameFingerprint(receive.fingerprint, fingerprint) && receive.bytes === bytes
    if (!fits && !receive.cancelled) this.#events.onMismatch(stream, fingerprint, receive)
    const onArrived = (): void => {
      this.#frames.consume(bytes)
    }
    return fits ? this.#arrive(receive, onArrived) : { at: undefined, onArrived }
  }

  /** The payload of a large message comes. */
  onData(stream: Stream, { index }: FrameHeader): Destination {
    const receive = takeIndex(stream.receives, index)
    this.#cleared--
    if (receive === undefined) return { at: undefined, onArrived: () => undefined }
    return this.#arrive(receive, () => undefined)
  }

  /** Stores a small message that nobody waits for. */
  #keep(stream: Stream, { index, fingerprint, bytes }: FrameHeader): Destination {
    const at = this.#memory.takeFrameBlock(bytes) + HEADER_BYTES
    return {
      at,
      onArrived: () => {
        stream.unexpected.push({ index, fingerprint, at, bytes })
        if (index >= stream.nextReceive) this.#events.onUnexpected(stream, fingerprint)
        else this.#matchLate(stream, index)
      },
    }
  }

  /** The receive was posted while the payload came in: it is matched now. */
  #matchLate(stream: Stream, index: number): void {
    const receive = takeIndex(stream.receives, index)
    if (receive === undefined) return
    if (receive.bytes > EAGER_LIMIT) this.#cleared--
    this.start(receive)
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
