import { HEADER_BYTES } from './frame.ts'

/** Eager bytes that may be under way to a rank that has not consumed them; bounds its memory. */
const EAGER_CREDIT = 256 * 1024

/**
 * Flow control of the eager frames of one link. Each side counts, modulo 2^32, what it has sent and
 * what it has consumed; every frame carries the second count back. Where there is no credit left, a
 * message travels by rendezvous instead, so that no message has to wait for another.
 */
export class Credit {
  #sent = 0
  #consumedByPeer = 0
  #consumed = 0
  #told = 0

  /** Charges an eager frame; false when the peer holds too many already. */
  trySpend(payload: number): boolean {
    const cost = HEADER_BYTES + payload
    const underWay = (this.#sent - this.#consumedByPeer) >>> 0
    if (underWay + cost > EAGER_CREDIT) return false
    this.#sent = (this.#sent + cost) >>> 0
    return true
  }

  /** Takes over the peer's count of consumed bytes. */
  update(consumedByPeer: number): void {
    this.#consumedByPeer = consumedByPeer
  }

  /** Counts a consumed eager frame; true when the peer should be told without delay. */
  consume(payload: number): boolean {
    this.#consumed = (this.#consumed + HEADER_BYTES + payload) >>> 0
    return (this.#consumed - this.#told) >>> 0 > EAGER_CREDIT / 2
  }

  /** The count that the next frame carries. */
  tell(): number {
    this.#told = this.#consumed
    return this.#consumed
  }
}
