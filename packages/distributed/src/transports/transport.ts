import type { Mail } from './mailbox.ts'
import type { SharedSlots } from './shared-slots.ts'
import type { TransportCollectives } from './transport-collectives.ts'

/** Returned by `trySend` and `tryReceive` if the peer is gone. */
export const CLOSED = -1

/** The reason for ending an encrypted stream that was tampered with. */
export const ALTERED_REASON = 'what it sent was changed, repeated or left out on the way'

/**
 * Moves bytes between this rank and its peers: one ordered, reliable stream for each peer. No
 * method blocks. Offsets are in the rank's heap; peers are world ranks.
 */
export interface Transport {
  readonly name: string
  /** Bytes at the low end of the heap that the transport uses. Default 0. */
  readonly reservedBytes?: number
  /**
   * The host number of each rank; ranks with the same number share memory. The same on all ranks.
   * Default: no ranks share memory.
   */
  readonly hosts?: readonly number[] | undefined
  /** Collectives that the transport's library runs itself. */
  readonly collectives?: TransportCollectives
  /** Slots for collectives of ranks that share memory. */
  readonly slots?: SharedSlots | undefined
  /** Returns the mailboxes from and to a peer; undefined if there are none. */
  mail?(peer: number): Mail | undefined
  /** Whether `get` can read the heap of a peer. */
  sharesMemory?(peer: number): boolean
  /** Copies `bytes` bytes from offset `from` of the peer's heap to offset `at` of this heap. */
  get?(peer: number, at: number, from: number, bytes: number): void
  /**
   * Sends up to `length` bytes from offset `at`. Returns the number of bytes, 0 if the stream is
   * full, or `CLOSED` if the peer is gone. `more` announces that another send to this peer follows
   * at once.
   */
  trySend(peer: number, at: number, length: number, more: boolean): number
  /**
   * Receives up to `length` bytes to offset `at`. Returns the number of bytes, 0 if there are none,
   * or `CLOSED`.
   */
  tryReceive(peer: number, at: number, length: number): number
  /** Sets whether to wake this rank when the stream to `peer` accepts bytes again. */
  wantSend(peer: number, wanted: boolean): void
  /** Returns why `trySend` or `tryReceive` has returned `CLOSED`. */
  closeReason(peer: number): string
  /** Ends the stream to one peer, after delivering the bytes that `trySend` has accepted. */
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
   * Whether sent data moves only while this rank polls. An engine that has no thread of its own
   * must then poll regularly.
   */
  readonly movesWhenLookedAt?: boolean
  readonly place?: LocalPlace | undefined
  /** The mapped heap of each rank that shares memory with this one. */
  readonly heaps?: readonly (MappedHeap | undefined)[]
  /**
   * Sleeps until a stream may move data or the doorbell is signalled, for at most `milliseconds`.
   */
  sleep(milliseconds: number): void
  /** Yields the core to other threads once. */
  yield(): void
  /**
   * Spins briefly, without yielding the core, until a peer has sent data. Returns whether a peer
   * has. Without `spin`, noticing the data takes a system call.
   */
  spin?(): boolean
  /** An eventfd that ends `sleep`. Any thread can signal it. */
  readonly doorbell: number
}

/** A transport that calls back on the event loop of its thread. */
export interface EventTransport extends Transport {
  /** Called whenever a stream may move data. */
  onReady: () => void
}
