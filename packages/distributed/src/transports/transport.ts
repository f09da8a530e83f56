import type { SharedSlots } from './shared-slots.ts'
import type { TransportCollectives } from './transport-collectives.ts'

/** Returned by `trySend` and `tryReceive` if the peer is gone. */
export const CLOSED = -1

/** The reason for ending a stream that was tampered with. */
export const ALTERED_REASON = 'what it sent was changed, repeated or left out on the way'

/**
 * Moves bytes between this rank and its peers: one ordered, reliable stream for each peer. No
 * method blocks. Offsets are in the rank's heap; peers are world ranks.
 */
export interface Transport {
  readonly name: string
  /** Bytes at the low end of the heap that the transport uses; default 0. */
  readonly reservedBytes?: number
  /**
   * The host number of each rank; ranks with the same number share memory. The same on all ranks.
   * Default: no ranks share memory.
   */
  readonly hosts?: readonly number[] | undefined
  /** Collectives that the transport's library runs itself. */
  readonly collectives?: TransportCollectives
  /** For small collectives of ranks that share memory. */
  readonly slots?: SharedSlots | undefined
  /** Whether `get` can read the heap of a peer. */
  sharesMemory?(peer: number): boolean
  /** Copies `bytes` bytes at `from` in the peer's heap to `at` in this one. */
  get?(peer: number, at: number, from: number, bytes: number): void
  /**
   * Sends up to `length` bytes at `at`. Returns how many, 0 if the stream is full, or `CLOSED` if
   * the peer is gone. `more` announces that another send to this peer follows at once.
   */
  trySend(peer: number, at: number, length: number, more: boolean): number
  /** Receives up to `length` bytes to `at`. Returns how many, 0 if there are none, or `CLOSED`. */
  tryReceive(peer: number, at: number, length: number): number
  /** Sets whether to wake up when the stream to `peer` accepts bytes again. */
  wantSend(peer: number, wanted: boolean): void
  /** Returns a text that says why `CLOSED` was returned. */
  closeReason(peer: number): string
  /** Ends the stream to one peer after delivering the accepted bytes. */
  closePeer(peer: number): void
  close(): void
}

/** The heap of another rank, mapped into this process. */
export interface MappedHeap {
  readonly address: number
  readonly bytes: number
}

/** A rank's local rank on its host, and the number of ranks on that host. */
export interface LocalPlace {
  readonly rank: number
  readonly size: number
}

/** A transport whose thread can sleep until data moves. */
export interface BlockingTransport extends Transport {
  /**
   * Whether sent data moves only while this rank polls. An engine without its own thread must then
   * poll regularly.
   */
  readonly movesWhenLookedAt?: boolean
  readonly place?: LocalPlace | undefined
  /** The mapped heap of each rank that shares memory with this one. */
  readonly heaps?: readonly (MappedHeap | undefined)[]
  /** Sleeps until a stream may move or the doorbell rings, at most `milliseconds`. */
  sleep(milliseconds: number): void
  /** Yields the core to other threads once. */
  yield(): void
  /**
   * Spins briefly, without yielding the core, until a peer has sent something. Returns whether one
   * has. Noticing that in another way would take a system call.
   */
  spin?(): boolean
  /** An eventfd. Signalling it from any thread ends `sleep`. */
  readonly doorbell: number
}

/** A transport that calls back on the event loop of its thread. */
export interface EventTransport extends Transport {
  /** Called whenever a stream may move. */
  onReady: () => void
}
