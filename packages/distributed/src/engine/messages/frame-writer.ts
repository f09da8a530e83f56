import type { Fingerprint } from '../../operation.ts'
import { CLOSED } from '../../transports/transport.ts'
import { Credit } from './credit.ts'
import { frameKinds, HEADER_BYTES, writeHeader, type StreamAddress } from './frame.ts'
import type { Link } from './link.ts'
import type { ExposedPayload, MessageFacts, Transfer } from './stream.ts'

/** Largest number of bytes to write in one call, so that receiving is not delayed for long. */
const SLICE = 1024 * 1024

const NOTHING: Fingerprint = { kind: 0, root: 0, count: 0 }
export const NO_STREAM: StreamAddress = { space: 0, group: 0, sequence: 0 }
export const NO_MESSAGE: MessageFacts = { index: 0, fingerprint: NOTHING, bytes: 0 }
const NOT_EXPOSED: ExposedPayload = { place: 0, guard: 0 }

interface OutgoingFrame {
  /** Offset of a block with the header and, for eager frames, the payload. */
  readonly block: number
  readonly blockPayload: number
  sent: number
  /** Heap offset of the payload, if it is outside the block. */
  at: number
  readonly bytes: number
  /** The transfer to complete once the last byte is sent. */
  transfer: Transfer | undefined
  /** Engine memory to release once the frame is sent. */
  copy?: number
}

/**
 * Writes the frames to one peer in order. Every frame also carries the credit for the opposite
 * direction.
 */
export class FrameWriter {
  readonly #link: Link
  readonly #credit: Credit
  #queue: OutgoingFrame[] = []
  #wantsSend = false
  #ended = false

  constructor(link: Link) {
    this.#link = link
    this.#credit = new Credit(link.mail?.outgoing.credit, link.mail?.incoming.credit)
  }

  /** Whether every frame was sent. */
  get isEmpty(): boolean {
    return this.#queue.length === 0
  }

  /** Ends the stream: all later writes are ignored. */
  end(): void {
    this.#ended = true
  }

  /** Updates the peer's count of consumed bytes from one of its frames. */
  onCredit(consumedByPeer: number): void {
    this.#credit.update(consumedByPeer)
  }

  /** Counts a consumed eager frame, and tells the peer if it may need the credit. */
  consume(payload: number): void {
    if (this.#credit.consume(payload)) this.writeBare(frameKinds.credit)
  }

  /** Writes a header and a copy of the payload. Returns false if the credit is used up. */
  tryWriteEager(transfer: Transfer): boolean {
    const { at, bytes } = transfer
    if (!this.#credit.trySpend(bytes)) return false
    const block = this.#begin(bytes, frameKinds.eager, transfer.stream, transfer)
    if (bytes > 0) this.#link.memory.copy(block + HEADER_BYTES, at, bytes)
    this.#pushBlock(block, bytes)
    return true
  }

  /** Writes a header and a payload, which is sent directly from its place in the heap. */
  writeData(transfer: Transfer): void {
    const { at, bytes } = transfer
    const block = this.#begin(0, frameKinds.data, transfer.stream, transfer)
    this.#push({ block, blockPayload: 0, sent: 0, at, bytes, transfer })
  }

  /** Writes a header about a message, without its payload. */
  write(
    kind: number,
    address: StreamAddress,
    message: MessageFacts,
    exposed?: ExposedPayload,
  ): void {
    if (!this.#ended) this.#pushBlock(this.#begin(0, kind, address, message, exposed), 0)
  }

  /** Writes a frame that belongs to no message. `guard` identifies an exposed payload, if any. */
  writeBare(kind: number, guard = 0): void {
    this.write(kind, NO_STREAM, NO_MESSAGE, { place: 0, guard })
  }

  /** Writes a payload from outside the heap: a fault or a notice. */
  writeText(kind: number, address: StreamAddress, payload: Uint8Array): void {
    if (this.#ended) return
    const bytes = payload.length
    const block = this.#begin(bytes, kind, address, { ...NO_MESSAGE, bytes })
    this.#link.memory.heap.bytes.set(payload, block + HEADER_BYTES)
    this.#pushBlock(block, bytes)
  }

  /**
   * Stops sending a payload from its place in the heap. A frame cannot end in the middle. If it was
   * partly sent, the remainder is copied and sent from the copy.
   *
   * @returns true if no part of the frame was or will be sent
   */
  withdrawData(transfer: Transfer): boolean {
    const i = this.#queue.findIndex((frame) => frame.transfer === transfer)
    const frame = this.#queue[i]
    if (frame === undefined) return false
    if (frame.sent === 0) {
      this.#queue.splice(i, 1)
      this.#release(frame)
      if (this.isEmpty) this.#want(false)
      return true
    }
    const done = Math.max(0, frame.sent - HEADER_BYTES)
    try {
      frame.copy = this.#link.memory.allocate(frame.bytes - done)
    } catch {
      // Without memory for the copy, break the connection: that is better than a wrong payload.
      this.#link.transport.closePeer(this.#link.peer)
      this.discard()
      return false
    }
    this.#link.memory.copy(frame.copy, frame.at + done, frame.bytes - done)
    frame.at = frame.copy - done
    frame.transfer = undefined
    return false
  }

  /** Writes as much as the transport accepts. Returns whether any byte was written. */
  flush(): boolean {
    let moved = false
    for (let frame = this.#queue[0]; frame !== undefined; frame = this.#queue[0]) {
      const blockBytes = HEADER_BYTES + frame.blockPayload
      const inBlock = frame.sent < blockBytes
      const at = inBlock ? frame.block + frame.sent : frame.at + frame.sent - blockBytes
      const left = inBlock ? blockBytes - frame.sent : frame.bytes - (frame.sent - blockBytes)
      const more = inBlock ? frame.bytes > 0 : left > SLICE
      const taken = this.#link.transport.trySend(this.#link.peer, at, Math.min(left, SLICE), more)
      if (taken === CLOSED) {
        this.discard()
        return false
      }
      if (taken === 0) {
        this.#want(true)
        return moved
      }
      moved = true
      frame.sent += taken
      this.#link.traffic.bytesSent += taken
      if (frame.sent === blockBytes + frame.bytes) this.#finish(frame)
    }
    this.#want(false)
    return moved
  }

  /** Discards unsent frames, because the peer is gone. */
  discard(): void {
    const rest = this.#queue
    this.#queue = []
    this.#want(false)
    for (const frame of rest) this.#release(frame)
  }

  /** Writes a header into a new block with room for `room` bytes of payload. */
  #begin(
    room: number,
    kind: number,
    { space, group, sequence }: StreamAddress,
    { index, fingerprint, bytes }: MessageFacts,
    { place, guard } = NOT_EXPOSED,
  ): number {
    const block = this.#link.memory.takeFrameBlock(room)
    writeHeader(this.#link.memory.heap, block, {
      kind,
      space,
      group,
      sequence,
      index,
      fingerprint,
      bytes,
      credit: this.#credit.tell(),
      place,
      guard,
    })
    return block
  }

  #pushBlock(block: number, blockPayload: number): void {
    this.#push({ block, blockPayload, sent: 0, at: 0, bytes: 0, transfer: undefined })
  }

  #push(frame: OutgoingFrame): void {
    this.#queue.push(frame)
    this.#link.traffic.framesSent++
    if (this.#queue.length === 1) this.flush()
  }

  #finish(frame: OutgoingFrame): void {
    this.#release(frame)
    this.#queue.shift()
    frame.transfer?.onDone()
  }

  #release({ block, blockPayload, copy }: OutgoingFrame): void {
    this.#link.memory.giveFrameBlock(block, blockPayload)
    if (copy !== undefined) this.#link.memory.release(copy)
  }

  #want(wanted: boolean): void {
    if (wanted === this.#wantsSend) return
    this.#wantsSend = wanted
    this.#link.transport.wantSend?.(this.#link.peer, wanted)
  }
}
