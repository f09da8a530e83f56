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

export type Sends = ReturnType<typeof createSends>

/**
 * The outgoing messages of one link. Small messages are sent at once. Large messages wait for a
 * clear-to-send or, with shared memory, until the receiver has copied them.
 */
export function createSends(
  writer: FrameWriter,
  memory: EngineMemory,
  events: StreamEvents,
  traffic: LinkTraffic,
  sharesMemory: boolean,
) {
  /** Sends whose payload the peer copies from this heap, by the guard of the payload. */
  const exposed = new Map<number, Transfer>()

  const sendData = (transfer: Transfer, { fingerprint, bytes }: MessageFacts): void => {
    if (!sameFingerprint(fingerprint, transfer.fingerprint) || bytes !== transfer.bytes) {
      transfer.onMismatch(fingerprint)
      return
    }
    transfer.onStarted()
    writer.writeData(transfer)
  }

  const expose = (transfer: Transfer): void => {
    const guard = memory.takeFrameBlock(0)
    Atomics.store(memory.heap.unsigned, guard >>> 2, 1)
    exposed.set(guard, transfer)
    writer.write(frameKinds.exposed, transfer.stream, transfer, { place: transfer.at, guard })
  }

  /**
   * Invalidates an exposed payload, so that the caller may change its buffer. The guard stays
   * allocated until the peer has answered.
   */
  const conceal = (transfer: Transfer): boolean => {
    for (const [guard, other] of exposed) {
      if (other !== transfer) continue
      Atomics.store(memory.heap.unsigned, guard >>> 2, 0)
      try {
        writer.writeBare(frameKinds.withdrawn, guard)
      } catch {
        // There is no engine memory left for the frame. The peer's operation ends with a time-out.
      }
      return true
    }
    return false
  }

  return {
    /** Starts a send, which may complete before this returns. */
    start(transfer: Transfer): void {
      const { stream, index, bytes } = transfer
      if (bytes <= EAGER_LIMIT && writer.tryWriteEager(transfer)) {
        transfer.onDone()
        return
      }
      if (sharesMemory) {
        expose(transfer)
        return
      }
      const cleared = takeIndex(stream.cleared, index)
      if (cleared !== undefined) {
        sendData(transfer, cleared)
        return
      }
      stream.sends.push(transfer)
      writer.write(frameKinds.requestToSend, stream, transfer)
    },
    /** Handles a clear-to-send, which may arrive before this rank has called the send. */
    onClearToSend(stream: Stream, cleared: MessageFacts): void {
      const { index, fingerprint } = cleared
      const send = takeIndex(stream.sends, index)
      if (send !== undefined) {
        sendData(send, cleared)
      } else if (index >= stream.nextSend) {
        stream.cleared.push(cleared)
        events.onUnexpected(stream, fingerprint)
      } else {
        writer.write(frameKinds.withdrawn, stream, cleared)
      }
    },
    /** Handles a peer that has copied an exposed payload, or that does not need it. */
    onGetDone(guard: number): void {
      const transfer = exposed.get(guard)
      if (transfer === undefined) return
      exposed.delete(guard)
      memory.giveFrameBlock(guard, 0)
      traffic.bytesSent += transfer.bytes
      if (transfer.cancelled) return
      transfer.onStarted()
      transfer.onDone()
    },
    /** Cancels a send. The receiver learns of it when it asks for the payload. */
    cancel(transfer: Transfer): void {
      if (exposed.size > 0 && conceal(transfer)) return
      const { stream } = transfer
      const waiting = stream.sends.indexOf(transfer)
      if (waiting >= 0) stream.sends.splice(waiting, 1)
      else if (writer.withdrawData(transfer)) {
        writer.write(frameKinds.withdrawn, stream, transfer)
      }
    },
  }
}
