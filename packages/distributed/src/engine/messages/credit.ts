import { HEADER_BYTES } from './frame.ts'

/** Largest number of unconsumed eager bytes, which limits the peer's memory. */
const EAGER_CREDIT = 256 * 1024

/** Index of each count of one direction. */
const SENT = 0
const CONSUMED = 16

/**
 * Flow control of the eager frames of one link. Each side counts the bytes that it has sent and the
 * bytes that it has consumed, modulo 2^32. Every frame carries the count of consumed bytes back.
 * Without credit, a message uses rendezvous instead of an eager frame, so no message waits for
 * another. Ranks that share memory share the counts instead.
 */
export class Credit {
  readonly #outgoing: Int32Array
  readonly #incoming: Int32Array
  readonly #isShared: boolean
  #told = 0

  /** @param outgoing - the counts for each direction, if the ranks share memory */
  constructor(outgoing?: Int32Array, incoming?: Int32Array) {
    this.#outgoing = outgoing ?? new Int32Array(CONSUMED + 1)
    this.#incoming = incoming ?? new Int32Array(CONSUMED + 1)
    this.#isShared = outgoing !== undefined
  }

  /** Charges an eager frame. Returns false if the peer has too many unconsumed bytes. */
  trySpend(payload: number): boolean {
    const cost = HEADER_BYTES + payload
    const sent = Atomics.load(this.#outgoing, SENT)
    const underWay = (sent - Atomics.load(this.#outgoing, CONSUMED)) >>> 0
    if (underWay + cost > EAGER_CREDIT) return false
    Atomics.add(this.#outgoing, SENT, cost)
    return true
  }

  /** Updates the peer's count of consumed bytes. */
  update(consumedByPeer: number): void {
    if (!this.#isShared) this.#outgoing[CONSUMED] = consumedByPeer
  }

  /** Counts a consumed eager frame. Returns true if this rank should tell the peer at once. */
  consume(payload: number): boolean {
    Atomics.add(this.#incoming, CONSUMED, HEADER_BYTES + payload)
    const untold = (this.#incoming[CONSUMED]! - this.#told) >>> 0
    return !this.#isShared && untold > EAGER_CREDIT / 2
  }

  /** Returns the count of consumed bytes, for the next frame. */
  tell(): number {
    this.#told = this.#incoming[CONSUMED]! >>> 0
    return this.#told
  }
}
