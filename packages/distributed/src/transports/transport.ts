import type { SharedSlots } from './shared-slots.ts'
import type { TransportCollectives } from './transport-collectives.ts'

/** What `trySend` and `tryReceive` return instead of a number of bytes when the peer is gone. */
export const CLOSED = -1

/** Why a stream ended that was tampered with between the ranks. */
export const ALTERED_REASON = 'what it sent was changed, repeated or left out on the way'

/**
 * Moves bytes between this rank and its peers: one ordered, reliable stream for each peer. Nothing
 * here blocks. Offsets are in the rank's heap; peers are ranks of the world.
 */
export interface Transport {
  readonly name: string
  /** Bytes at the low end of the heap that it keeps for itself; default 0. */
  readonly reservedBytes?: number
  /**
   * By rank: a number for each host, the same for ranks that share memory; the same list on all
   * ranks. Default: no rank shares memory.
   */
  readonly hosts?: readonly number[] | undefined
  /** Collectives that the library behind it runs itself. */
  readonly collectives?: TransportCollectives
  /** For small collectives of ranks that share memory. */
  readonly slots?: SharedSlots | undefined
  /** Whether `get` reaches the heap of a peer. */
  sharesMemory?(peer: number): boolean
  /** Copies `bytes` bytes at `from` in the peer's heap to `at` in this one. */
  get?(peer: number, at: number, from: number, bytes: number): void
  /**
   * Takes up to `length` bytes at `at`; returns how many, 0 when the stream is full, `CLOSED` when
   * the peer is gone. `more` announces that another send to this peer follows at once.
   */
  trySend(peer: number, at: number, length: number, more: boolean): number
  /** Puts up to `length` bytes at `at`; returns how many, 0 when there are none, or `CLOSED`. */
  tryReceive(peer: number, at: number, length: number): number
  /** Whether to wake up when the stream to `peer` takes bytes again. */
  wantSend(peer: number, wanted: boolean): void
  /** Why `CLOSED` was returned; human-readable. */
  closeReason(peer: number): string
  /** Ends the stream to one peer, after what was taken has been delivered. */
  closePeer(peer: number): void
  close(): void
}

/** The heap of another rank, as this process has mapped it. */
export interface MappedHeap {
  readonly address: number
  readonly bytes: number
}

/** A rank's place among those of its host. */
export interface LocalPlace {
  readonly rank: number
  readonly size: number
}

/** A transport whose thread can sleep until something moves. */
export interface BlockingTransport extends Transport {
  /**
   * Whether data that this rank has handed over moves only while it polls. An engine without a thread of
   * its own has to poll now and then.
   */
  readonly movesWhenLookedAt?: boolean
  readonly place?: LocalPlace | undefined
  /** By rank: the heap of a rank that shares memory with this one, as this process has mapped it. */
  readonly heaps?: readonly (MappedHeap | undefined)[]
  /** Sleeps until a stream may move or the doorbell rings, at most `milliseconds`. */
  sleep(milliseconds: number): void
  /** Lets other threads of the core run, once. */
  yield(): void
  /**
   * Spins briefly until a peer has sent something, without yielding the core. Returns whether one has: a
   * wait without it would take a system call to notice.
   */
  spin?(): boolean
  /** An eventfd: to signal it ends `sleep`, from any thread. */
  readonly doorbell: number
}

/** A transport that calls back on its thread's event loop. */
export interface EventTransport extends Transport {
  /** Called whenever a stream may move. */
  onReady: () => void
}
