import { HEADER_BYTES } from './frame.ts'

/** Eager bytes that may be on their way to a rank that has not taken them up: bounds its memory. */
const EAGER_CREDIT = 256 * 1024

interface Waiting {
  readonly cost: number
  readonly isWanted: () => boolean
  readonly push: () => void
}

/**
 * Flow control of eager frames and announcements on one link. Each side counts, modulo 2^32, what
 * it sent and what it consumed; every frame carries the second count back.
 */
export class Credit {
  #sent = 0
  #consumedByPeer = 0
  #consumed = 0
  #told = 0
  readonly #waiting: Waiting[] = []

  /** Calls `push` now, or as soon as the peer has consumed enough. */
  spend(payload: number, push: () => void, isWanted: () => boolean): void {
    const waiting = { cost: HEADER_BYTES + payload, push, isWanted }
    if (this.#waiting.length > 0 || !this.#charge(waiting)) this.#waiting.push(waiting)
  }

  /** Takes over the peer's count of consumed bytes. */
  update(consumedByPeer: number): void {
    if (consumedByPeer === this.#consumedByPeer) return
    this.#consumedByPeer = consumedByPeer
    let next = this.#waiting[0]
    while (next !== undefined && (!next.isWanted() || this.#charge(next))) {
      this.#waiting.shift()
      next = this.#waiting[0]
    }
  }

  /** Counts a consumed frame; true when the peer should be told without delay. */
  consume(payload: number): boolean {
    this.#consumed = (this.#consumed + HEADER_BYTES + payload) >>> 0
    return (this.#consumed - this.#told) >>> 0 > EAGER_CREDIT / 2
  }

  /** The count that the next frame carries. */
  tell(): number {
    this.#told = this.#consumed
    return this.#consumed
  }

  #charge({ cost, push }: Waiting): boolean {
    const inFlight = (this.#sent - this.#consumedByPeer) >>> 0
    if (inFlight + cost > EAGER_CREDIT) return false
    this.#sent = (this.#sent + cost) >>> 0
    push()
    return true
  }
}
