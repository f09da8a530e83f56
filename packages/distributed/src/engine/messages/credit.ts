import { HEADER_BYTES } from './frame.ts'

/**
 * Largest number of eager bytes that a peer has not consumed. It limits the memory for unexpected
 * messages.
 */
const EAGER_CREDIT = 256 * 1024

/**
 * Flow control of the eager frames of one link. Each side counts the bytes that it has sent and the
 * bytes that it has consumed, modulo 2^32. Every frame carries the count of consumed bytes back.
 * Without credit, a message uses rendezvous instead of an eager frame, so no message waits for
 * another.
 */
export class Credit {
  #sent = 0
  #consumedByPeer = 0
  #consumed = 0
  #told = 0

  /** Charges an eager frame. Returns false if the peer has too many unconsumed bytes. */
  trySpend(payload: number): boolean {
    const cost = HEADER_BYTES + payload
    const underWay = (this.#sent - this.#consumedByPeer) >>> 0
    if (underWay + cost > EAGER_CREDIT) return false
    this.#sent = (this.#sent + cost) >>> 0
    return true
  }

  /** Updates the peer's count of consumed bytes. */
  update(consumedByPeer: number): void {
    this.#consumedByPeer = consumedByPeer
  }

  /** Counts a consumed eager frame. Returns true if this rank should tell the peer at once. */
  consume(payload: number): boolean {
    this.#consumed = (this.#consumed + HEADER_BYTES + payload) >>> 0
    return (this.#consumed - this.#told) >>> 0 > EAGER_CREDIT / 2
  }

  /** Returns the count of consumed bytes, for the next frame. */
  tell(): number {
    this.#told = this.#consumed
    return this.#consumed
  }
}
