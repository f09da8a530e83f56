import { sameFingerprint } from '../../operation.ts'
import { EAGER_LIMIT, frameKinds } from './frame.ts'
import type { Link } from './link.ts'
import { takeIndex, type MessageFacts, type Stream, type Transfer } from './stream.ts'

/**
 * The outgoing messages of one link. Small messages are sent at once. Large messages wait for a
 * clear-to-send or, with shared memory, until the receiver has copied them.
 */
export class Sends {
  readonly #link: Link
  /** Sends whose payload the peer copies from this heap, by the guard of the payload. */
  readonly #exposed = new Map<number, Transfer>()

  constructor(link: Link) {
    this.#link = link
  }

  /** Starts a send, which may complete before this returns. */
  start(transfer: Transfer): void {
    const { stream, index, bytes } = transfer
    if (bytes <= EAGER_LIMIT && this.#link.writer.tryWriteEager(transfer)) {
      transfer.onDone()
      return
    }
    if (this.#link.sharesMemory) {
      this.#expose(transfer)
      return
    }
    const cleared = takeIndex(stream.cleared, index)
    if (cleared !== undefined) {
      this.#sendData(transfer, cleared)
      return
    }
    stream.sends.push(transfer)
    this.#link.writer.write(frameKinds.requestToSend, stream, transfer)
  }

  /** Handles a clear-to-send, which may arrive before this rank has called the send. */
  onClearToSend(stream: Stream, cleared: MessageFacts): void {
    const { index, fingerprint } = cleared
    const send = takeIndex(stream.sends, index)
    if (send !== undefined) {
      this.#sendData(send, cleared)
    } else if (index >= stream.nextSend) {
      stream.cleared.push(cleared)
      this.#link.events.onUnexpected(stream, fingerprint)
    } else {
      this.#link.writer.write(frameKinds.withdrawn, stream, cleared)
    }
  }

  /** Handles a peer that has copied an exposed payload, or that does not need it. */
  onGetDone(guard: number): void {
    const transfer = this.#exposed.get(guard)
    if (transfer === undefined) return
    this.#exposed.delete(guard)
    this.#link.memory.giveFrameBlock(guard, 0)
    this.#link.traffic.bytesSent += transfer.bytes
    if (transfer.cancelled) return
    transfer.onStarted()
    transfer.onDone()
  }

  /** Cancels a send. The receiver learns of it when it asks for the payload. */
  cancel(transfer: Transfer): void {
    if (this.#exposed.size > 0 && this.#conceal(transfer)) return
    const { stream } = transfer
    const waiting = stream.sends.indexOf(transfer)
    if (waiting >= 0) stream.sends.splice(waiting, 1)
    else if (this.#link.writer.withdrawData(transfer)) {
      this.#link.writer.write(frameKinds.withdrawn, stream, transfer)
    }
  }

  #sendData(transfer: Transfer, { fingerprint, bytes }: MessageFacts): void {
    if (!sameFingerprint(fingerprint, transfer.fingerprint) || bytes !== transfer.bytes) {
      transfer.onMismatch(fingerprint)
      return
    }
    transfer.onStarted()
    this.#link.writer.writeData(transfer)
  }

  #expose(transfer: Transfer): void {
    const guard = this.#link.memory.takeFrameBlock(0)
    Atomics.store(this.#link.memory.heap.unsigned, guard >>> 2, 1)
    this.#exposed.set(guard, transfer)
    const exposed = { place: transfer.at, guard }
    this.#link.writer.write(frameKinds.exposed, transfer.stream, transfer, exposed)
  }

  /** Invalidates an exposed payload. Its guard stays until the peer has answered. */
  #conceal(transfer: Transfer): boolean {
    for (const [guard, exposed] of this.#exposed) {
      if (exposed !== transfer) continue
      Atomics.store(this.#link.memory.heap.unsigned, guard >>> 2, 0)
      try {
        this.#link.writer.writeBare(frameKinds.withdrawn, guard)
      } catch {
        // There is no engine memory left for the frame. The peer's operation ends with a time-out.
      }
      return true
    }
    return false
  }
}
