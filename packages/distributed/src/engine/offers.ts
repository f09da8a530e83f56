import type { EngineMemory } from './engine-memory.ts'
import type { Frames } from './frames.ts'
import type { LinkEvents } from './link.ts'
import type { Transfer } from './transfer.ts'

/** Large messages to a peer that copies them out of this rank's heap. */
export class Offers {
  readonly #frames: Frames
  readonly #memory: EngineMemory
  readonly #events: LinkEvents
  readonly #onSent: (bytes: number) => void
  /** By the offset of their guard, a word that is 1 while the payload is what it should be. */
  readonly #open = new Map<number, Transfer>()

  constructor(
    frames: Frames,
    memory: EngineMemory,
    events: LinkEvents,
    onSent: (bytes: number) => void,
  ) {
    this.#frames = frames
    this.#memory = memory
    this.#events = events
    this.#onSent = onSent
  }

  make(transfer: Transfer): void {
    const guard = this.#memory.takeFrameBlock(0)
    Atomics.store(this.#memory.heap.unsigned, guard >>> 2, 1)
    this.#open.set(guard, transfer)
    this.#frames.writeOffer(transfer.stream, transfer, { place: transfer.at, guard })
  }

  /** The peer has the payload, or will never need it. */
  onFetched(guard: number): void {
    const transfer = this.#open.get(guard)
    if (transfer === undefined) return
    this.#open.delete(guard)
    this.#memory.giveFrameBlock(guard, 0)
    this.#onSent(transfer.bytes)
    if (transfer.cancelled) return
    this.#events.onStarted(transfer)
    this.#events.onDone(transfer)
  }

  /** The payload's place may change from now on; the guard stays until the peer has answered. */
  cancel(transfer: Transfer): boolean {
    for (const [guard, offered] of this.#open) {
      if (offered !== transfer) continue
      Atomics.store(this.#memory.heap.unsigned, guard >>> 2, 0)
      try {
        this.#frames.writeWithdrawnOffer(guard)
      } catch {
        // no engine memory left: the peer finds out by its time-out
      }
      return true
    }
    return false
  }
}
