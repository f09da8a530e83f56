import { EAGER_LIMIT } from './engine-memory.ts'
import { frameKinds } from './frame.ts'
import type { Frames } from './frames.ts'
import type { LinkEvents } from './link.ts'
import { sameFingerprint, type Fingerprint } from './operation.ts'
import { takeIndex, type Clearance, type Stream } from './stream.ts'
import type { Transfer } from './transfer.ts'

/** The outgoing messages of one link: small ones leave at once, large ones wait for clearance. */
export class Sends {
  readonly #frames: Frames
  readonly #events: LinkEvents

  constructor(frames: Frames, events: LinkEvents) {
    this.#frames = frames
    this.#events = events
  }

  /** Starts a send; it may be done when this returns. */
  start(transfer: Transfer): void {
    const { stream, index, bytes } = transfer
    if (bytes <= EAGER_LIMIT) {
      const push = (): void => {
        this.#frames.writeEager(transfer)
        this.#events.onDone(transfer)
      }
      this.#frames.spend(bytes, push, () => !transfer.cancelled)
      return
    }
    const clearance = takeIndex(stream.clearances, index)
    if (clearance !== undefined) {
      this.#sendData(transfer, clearance.fingerprint, clearance.bytes)
      return
    }
    stream.sends.push(transfer)
    const push = (): void => {
      this.#frames.writeHeader(frameKinds.announce, transfer)
    }
    this.#frames.spend(0, push, () => stream.sends.includes(transfer))
  }

  /** The peer has a place for a large message. */
  onClear(stream: Stream, clearance: Clearance): void {
    const send = takeIndex(stream.sends, clearance.index)
    if (send !== undefined) {
      this.#sendData(send, clearance.fingerprint, clearance.bytes)
    } else if (clearance.index >= stream.nextSend) {
      stream.clearances.push(clearance)
      this.#events.onUnexpected(stream, clearance.fingerprint)
    }
  }

  #sendData(transfer: Transfer, theirs: Fingerprint, bytes: number): void {
    if (!sameFingerprint(theirs, transfer.fingerprint) || bytes !== transfer.bytes) {
      this.#events.onMismatch(transfer.stream, theirs, transfer)
      return
    }
    this.#events.onStarted(transfer)
    transfer.leaving = true
    this.#frames.writeData(transfer)
  }
}
