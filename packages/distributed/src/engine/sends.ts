import { EAGER_LIMIT } from './engine-memory.ts'
import { frameKinds } from './frame.ts'
import type { Frames } from './frames.ts'
import type { LinkEvents } from './link.ts'
import { sameFingerprint } from '../operation.ts'
import type { Offers } from './offers.ts'
import { takeIndex, type Clearance, type Stream } from './stream.ts'
import type { Transfer } from './transfer.ts'

/** The outgoing messages of one link: small ones leave at once, others wait for clearance. */
export class Sends {
  readonly #frames: Frames
  readonly #events: LinkEvents
  /** Where the peer shares memory. */
  readonly #offers: Offers | undefined

  constructor(frames: Frames, events: LinkEvents, offers: Offers | undefined) {
    this.#frames = frames
    this.#events = events
    this.#offers = offers
  }

  /** Starts a send; it may be done when this returns. */
  start(transfer: Transfer): void {
    const { stream, index, bytes } = transfer
    if (bytes <= EAGER_LIMIT && this.#frames.tryWriteEager(transfer)) {
      this.#events.onDone(transfer)
      return
    }
    if (this.#offers !== undefined) {
      this.#offers.make(transfer)
      return
    }
    const clearance = takeIndex(stream.clearances, index)
    if (clearance !== undefined) {
      this.#sendData(transfer, clearance)
      return
    }
    stream.sends.push(transfer)
    this.#frames.write(frameKinds.announce, stream, transfer)
  }

  /** The peer has a place for a message that was, or will be, announced. */
  onClear(stream: Stream, clearance: Clearance): void {
    const { index, fingerprint } = clearance
    const send = takeIndex(stream.sends, index)
    if (send !== undefined) {
      this.#sendData(send, clearance)
    } else if (index >= stream.nextSend) {
      stream.clearances.push(clearance)
      this.#events.onUnexpected(stream, fingerprint)
    } else {
      this.#frames.write(frameKinds.withdrawn, stream, clearance)
    }
  }

  /** Gives a send up: the receiver learns of it when it asks for the payload. */
  cancel(transfer: Transfer): void {
    if (this.#offers?.cancel(transfer) === true) return
    const { stream } = transfer
    const waiting = stream.sends.indexOf(transfer)
    if (waiting >= 0) stream.sends.splice(waiting, 1)
    else if (this.#frames.withdrawData(transfer)) {
      this.#frames.write(frameKinds.withdrawn, stream, transfer)
    }
  }

  #sendData(transfer: Transfer, clearance: Clearance): void {
    const { fingerprint, bytes } = clearance
    if (!sameFingerprint(fingerprint, transfer.fingerprint) || bytes !== transfer.bytes) {
      this.#events.onMismatch(transfer.stream, fingerprint, transfer)
      return
    }
    this.#events.onStarted(transfer)
    this.#frames.writeData(transfer)
  }
}
