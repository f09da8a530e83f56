import type { Transport } from '../transports/transport.ts'
import type { EngineMemory } from './engine-memory.ts'
import type { Frames } from './frames.ts'
import type { LinkEvents } from './link.ts'
import type { Transfer } from './transfer.ts'

/** Bytes copied in one go, so that other messages get their turn. */
const SLICE = 1024 * 1024

/** Where a peer has put a message. */
export interface Offer {
  readonly place: number
  readonly guard: number
}

interface Pull extends Offer {
  readonly receive: Transfer
  done: number
}

/** Large messages that this rank copies out of a peer's heap, in the order of their matches. */
export class Pulls {
  readonly #transport: Transport
  readonly #memory: EngineMemory
  readonly #frames: Frames
  readonly #events: LinkEvents
  readonly #onReceived: (bytes: number) => void
  readonly #peer: number
  readonly #queue: Pull[] = []
  /** Offers that are not answered, by guard; whether the peer has taken them back. */
  readonly #open = new Map<number, 'offered' | 'withdrawn'>()
  /** Receives whose payload was taken back, until the peer has said so too. */
  readonly #revoked = new Map<number, Transfer>()
  readonly #guardAt: number

  constructor(
    peer: number,
    transport: Transport,
    memory: EngineMemory,
    frames: Frames,
    events: LinkEvents,
    onReceived: (bytes: number) => void,
  ) {
    this.#peer = peer
    this.#transport = transport
    this.#memory = memory
    this.#frames = frames
    this.#events = events
    this.#onReceived = onReceived
    this.#guardAt = memory.takeFrameBlock(0)
  }

  get isEmpty(): boolean {
    return this.#queue.length === 0
  }

  start(receive: Transfer, { place, guard }: Offer): void {
    this.#events.onStarted(receive)
    this.#queue.push({ receive, place, guard, done: 0 })
    if (this.#queue.length === 1 && receive.bytes <= SLICE) this.advance()
  }

  /** An offer has come. */
  note({ guard }: Offer): void {
    this.#open.set(guard, 'offered')
  }

  /** Lets the peer have its buffer back without a copy. */
  refuse({ guard }: Offer): void {
    this.#answer(guard)
  }

  /** Copies a slice of the oldest message. */
  advance(): void {
    const pull = this.#queue[0]
    if (pull === undefined) return
    const { receive, place, guard } = pull
    if (!receive.cancelled) {
      const length = Math.min(SLICE, receive.bytes - pull.done)
      this.#transport.pull!(this.#peer, receive.at + pull.done, place + pull.done, length)
      pull.done += length
      this.#onReceived(length)
      if (pull.done < receive.bytes) return
    }
    this.#queue.shift()
    // a copied buffer that its sender took back meanwhile is no message
    if (receive.cancelled || this.#readGuard(guard) === 1) {
      this.#answer(guard)
      if (!receive.cancelled) this.#events.onDone(receive)
    } else {
      this.#revoked.set(guard, receive)
      if (this.#open.get(guard) === 'withdrawn') this.#endRevoked(guard)
    }
  }

  /**
   * The peer says that it has taken an offer back. The word at the guard says so earlier, but frames
   * may be on their way that say why.
   */
  onWithdrawn(guard: number): void {
    if (!this.#open.has(guard)) return
    this.#open.set(guard, 'withdrawn')
    this.#endRevoked(guard)
  }

  #endRevoked(guard: number): void {
    const receive = this.#revoked.get(guard)
    if (receive === undefined) return
    this.#revoked.delete(guard)
    this.#answer(guard)
    if (!receive.cancelled) this.#events.onWithdrawn(receive)
  }

  #answer(guard: number): void {
    this.#open.delete(guard)
    this.#frames.writeFetched(guard)
  }

  #readGuard(guard: number): number {
    this.#transport.pull!(this.#peer, this.#guardAt, guard, 4)
    return Atomics.load(this.#memory.heap.unsigned, this.#guardAt >>> 2)
  }
}
