import { CLOSED, type Transport } from '../transports/transport.ts'
import type { EngineMemory } from './engine-memory.ts'
import { HEADER_BYTES, writeHeader, type FrameHeader } from './frame.ts'
import type { Transfer } from './transfer.ts'

/** Bytes handed to the transport in one call, so that reading gets its turn. */
const SLICE = 1024 * 1024

interface OutgoingFrame {
  /** Block with the header and, for eager frames, the payload. */
  readonly block: number
  readonly blockPayload: number
  sent: number
  /** Payload outside the block. */
  at: number
  readonly bytes: number
  /** Done when the last byte has left. */
  transfer: Transfer | undefined
  /** Engine memory to release when the frame has left. */
  copy?: number
}

/** Frames on their way to one peer, in order. */
export class Outbound {
  readonly #transport: Transport
  readonly #memory: EngineMemory
  readonly #peer: number
  readonly #onSent: (transfer: Transfer) => void
  #queue: OutgoingFrame[] = []
  #head = 0
  #wantsSend = false
  bytesSent = 0
  framesSent = 0

  constructor(
    transport: Transport,
    memory: EngineMemory,
    peer: number,
    onSent: (transfer: Transfer) => void,
  ) {
    this.#transport = transport
    this.#memory = memory
    this.#peer = peer
    this.#onSent = onSent
  }

  get isEmpty(): boolean {
    return this.#head === this.#queue.length
  }

  /** Queues a frame whose payload (at most EAGER_LIMIT bytes) is copied now. */
  pushCopied(header: FrameHeader, at: number): void {
    const block = this.#memory.takeFrameBlock(header.bytes)
    const { heap } = this.#memory
    writeHeader(heap, block, header)
    if (header.bytes > 0) this.#memory.copy(block + HEADER_BYTES, at, header.bytes)
    this.#pushBlock(block, header.bytes)
  }

  /** Queues a frame with a payload from outside the heap. */
  pushBytes(header: FrameHeader, payload: Uint8Array): void {
    const block = this.#memory.takeFrameBlock(payload.length)
    const { heap } = this.#memory
    writeHeader(heap, block, header)
    heap.bytes.set(payload, block + HEADER_BYTES)
    this.#pushBlock(block, payload.length)
  }

  /** Queues a header alone; `header.bytes` may still count what is announced or cleared. */
  pushHeader(header: FrameHeader): void {
    const block = this.#memory.takeFrameBlock(0)
    writeHeader(this.#memory.heap, block, header)
    this.#pushBlock(block, 0)
  }

  /** Queues a frame whose payload leaves straight from its place. */
  pushDirect(header: FrameHeader, transfer: Transfer): void {
    const block = this.#memory.takeFrameBlock(0)
    writeHeader(this.#memory.heap, block, header)
    this.#push({
      block,
      blockPayload: 0,
      sent: 0,
      at: transfer.at,
      bytes: transfer.bytes,
      transfer,
    })
  }

  /**
   * Lets go of the place that a payload leaves from. A frame cannot end in the middle: when it has
   * begun, its rest is copied and still leaves.
   *
   * @returns whether it had not begun: then it never leaves
   */
  withdraw(transfer: Transfer): boolean {
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
      frame.copy = this.#memory.allocate(frame.bytes - done)
    } catch {
      // no room for the rest: a broken connection is better than a wrong payload
      this.#transport.closePeer(this.#peer)
      this.discard()
      return false
    }
    this.#memory.copy(frame.copy, frame.at + done, frame.bytes - done)
    frame.at = frame.copy - done
    frame.transfer = undefined
    return false
  }

  #pushBlock(block: number, blockPayload: number): void {
    this.#push({ block, blockPayload, sent: 0, at: 0, bytes: 0, transfer: undefined })
  }

  #push(frame: OutgoingFrame): void {
    this.#queue.push(frame)
    this.framesSent++
    if (this.#queue.length === this.#head + 1) this.flush()
  }

  /** Hands on what the transport takes. Returns whether anything moved; false too when closed. */
  flush(): boolean {
    let moved = false
    while (this.#head < this.#queue.length) {
      const frame = this.#queue[this.#head]!
      const blockBytes = HEADER_BYTES + frame.blockPayload
      const inBlock = frame.sent < blockBytes
      const at = inBlock ? frame.block + frame.sent : frame.at + frame.sent - blockBytes
      const left = inBlock ? blockBytes - frame.sent : frame.bytes - (frame.sent - blockBytes)
      const more = inBlock ? frame.bytes > 0 : left > SLICE
      const taken = this.#transport.trySend(this.#peer, at, Math.min(left, SLICE), more)
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
      this.bytesSent += taken
      if (frame.sent === blockBytes + frame.bytes) this.#finish(frame)
    }
    this.#want(false)
    return moved
  }

  /** Throws away what has not left: the peer is gone. */
  discard(): void {
    const rest = this.#queue.slice(this.#head)
    this.#queue = []
    this.#head = 0
    this.#want(false)
    for (const frame of rest) this.#release(frame)
  }

  #finish(frame: OutgoingFrame): void {
    this.#release(frame)
    this.#head++
    if (this.#head === this.#queue.length) {
      this.#queue.length = 0
      this.#head = 0
    } else if (this.#head > 256) {
      this.#queue.splice(0, this.#head)
      this.#head = 0
    }
    if (frame.transfer !== undefined) this.#onSent(frame.transfer)
  }

  #release({ block, blockPayload, copy }: OutgoingFrame): void {
    this.#memory.giveFrameBlock(block, blockPayload)
    if (copy !== undefined) this.#memory.release(copy)
  }

  #want(wanted: boolean): void {
    if (wanted === this.#wantsSend) return
    this.#wantsSend = wanted
    this.#transport.wantSend(this.#peer, wanted)
  }
}
