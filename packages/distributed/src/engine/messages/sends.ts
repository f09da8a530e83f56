import { sameFingerprint } from '../../operation.ts'
import { EAGER_LIMIT, frameKinds } from './frame.ts'
import type { FrameWriter, LinkTraffic } from './frame-writer.ts'
import type { EngineMemory } from './memory.ts'
import {
  takeIndex,
  type MessageFacts,
  type Stream,
  type StreamEvents,
  type Transfer,
} from './stream.ts'

/**
 * The outgoing messages of one link. Small ones are sent at once. Large ones wait until the
 * receiver has cleared them or, with shared memory, has copied them.
 */
export class Sends {
  readonly #writer: FrameWriter
  readonly #memory: EngineMemory
  readonly #events: StreamEvents
  readonly #traffic: LinkTraffic
  readonly #sharesMemory: boolean
  /** Sends whose payload the peer copies, by guard; see `ExposedPayload`. */
  readonly #exposed = new Map<number, Transfer>()

  constructor(
    writer: FrameWriter,
    memory: EngineMemory,
    events: StreamEvents,
    traffic: LinkTraffic,
    sharesMemory: boolean,
  ) {
    this.#writer = writer
    this.#memory = memory
    this.#events = events
    this.#traffic = traffic
    this.#sharesMemory = sharesMemory
  }

  /** Starts a send, which may complete before this returns. */
  start(transfer: Transfer): void {
    const { stream, index, bytes } = transfer
    if (bytes <= EAGER_LIMIT && this.#writer.tryWriteEager(transfer)) {
      transfer.onDone()
      return
    }
    if (this.#sharesMemory) {
      this.#expose(transfer)
      return
    }
    const cleared = takeIndex(stream.cleared, index)
    if (cleared !== undefined) {
      this.#sendData(transfer, cleared)
      return
    }
    stream.sends.push(transfer)
    this.#writer.write(frameKinds.requestToSend, stream, transfer)
  }

  /** Handles a clear-to-send, which may arrive before the send is called. */
  onClearToSend(stream: Stream, cleared: MessageFacts): void {
    const { index, fingerprint } = cleared
    const send = takeIndex(stream.sends, index)
    if (send !== undefined) {
      this.#sendData(send, cleared)
    } else if (index >= stream.nextSend) {
      stream.cleared.push(cleared)
      this.#events.onUnexpected(stream, fingerprint)
    } else {
      this.#writer.write(frameKinds.withdrawn, stream, cleared)
    }
  }

  /** Handles a peer that has copied an exposed payload, or will never need it. */
  onGetDone(guard: number): void {
    const transfer = this.#exposed.get(guard)
    if (transfer === undefined) return
    this.#exposed.delete(guard)
    this.#memory.giveFrameBlock(guard, 0)
    this.#traffic.bytesSent += transfer.bytes
    if (transfer.cancelled) return
    transfer.onStarted()
    transfer.onDone()
  }

  /** Cancels a send. The receiver notices when it asks for the payload. */
  cancel(transfer: Transfer): void {
    if (this.#exposed.size > 0 && this.#conceal(transfer)) return
    const { stream } = transfer
    const waiting = stream.sends.indexOf(transfer)
    if (waiting >= 0) stream.sends.splice(waiting, 1)
    else if (this.#writer.withdrawData(transfer)) {
      this.#writer.write(frameKinds.withdrawn, stream, transfer)
    }
  }

  #sendData(transfer: Transfer, { fingerprint, bytes }: MessageFacts): void {
    if (!sameFingerprint(fingerprint, transfer.fingerprint) || bytes !== transfer.bytes) {
      transfer.onMismatch(fingerprint)
      return
    }
    transfer.onStarted()
    this.#writer.writeData(transfer)
  }

  #expose(transfer: Transfer): void {
    const guard = this.#memory.takeFrameBlock(0)
    Atomics.store(this.#memory.heap.unsigned, guard >>> 2, 1)
    this.#exposed.set(guard, transfer)
    const exposed = { place: transfer.at, guard }
    this.#writer.write(frameKinds.exposed, transfer.stream, transfer, exposed)
  }

  /** Invalidates an exposed payload, so that it may change. The guard stays until the peer has answered. */
  #conceal(transfer: Transfer): boolean {
    for (const [guard, exposed] of this.#exposed) {
      if (exposed !== transfer) continue
      Atomics.store(this.#memory.heap.unsigned, guard >>> 2, 0)
      try {
        this.#writer.writeBare(frameKinds.withdrawn, guard)
      } catch {
        // There is no engine memory left. The peer notices by its time-out.
      }
      return true
    }
    return false
  }
}
