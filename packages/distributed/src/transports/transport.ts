import type { Channel, Layout, Resumable, Waited } from '../algorithms/channel.ts'
import type { Fingerprint, Operation } from '../operation.ts'
import type { Mail } from './mailbox.ts'

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
  /** Receives up to `length` bytes to offset `at`. Returns the number of received bytes, or `CLOSED`. */
  tryReceive(peer: number, at: number, length: number): number
  /**
   * Sets whether to wake this rank when the stream to `peer` accepts bytes again. Without this method, the
   * transport always wakes this rank, or this rank polls.
   */
  wantSend?(peer: number, wanted: boolean): void
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
  /** Sleeps until a stream may move data or the doorbell is rung, for at most `milliseconds`. */
  sleep(milliseconds: number): void
  /** Yields the core to other threads once. */
  yield(): void
  /**
   * Spins briefly, without yielding the core, until a peer has sent data. Returns whether a peer
   * has. Without `spin`, noticing the data takes a system call.
   */
  spin?(): boolean
  /** A bell that ends `sleep`. Any thread can ring it. */
  readonly doorbell: number
}

/** A transport that calls back on the event loop of its thread. */
export interface EventTransport extends Transport {
  /** Called whenever a stream may move data. */
  onReady: () => void
}

/** A process group as transports see it. */
export interface GroupFacts {
  readonly id: number
  /** Rank of this process in the group. */
  readonly rank: number
  /** World rank of each member. */
  readonly ranks: readonly number[]
  readonly layout: Layout
}

/**
 * A running operation of the engine, for transports. As a `Channel`, it also carries messages.
 */
export interface RunningOperation extends Channel {
  readonly operation: Operation
  readonly group: GroupFacts
  readonly fingerprint: Fingerprint
  readonly state: 'running' | 'done' | 'failed'
  /** When the operation moved its first data, by `monotonicNow()`; 0 before. */
  started: number
  /** Schedules the operation to resume, if it waits for this event. */
  resume(waited: Waited): void
}

/** Collectives that a transport runs itself, without the engine's messages. */
export interface TransportCollectives {
  /**
   * Returns the operation with an algorithm of the transport. Returns undefined if the transport
   * cannot run the operation. The result is the same on all ranks of the group.
   */
  take(operation: Operation, group: GroupFacts): Operation | undefined
  /**
   * Returns the body of the operation. The operation takes its position among the transport's
   * collectives when its body first runs.
   */
  run(running: RunningOperation): Resumable
  /** Polls pending transfers, and resumes the operations that wait for completed ones. */
  progress(): boolean
  removeGroup?(id: number): void
}

/** The collective to which a published buffer belongs. */
export interface SlotHeader {
  /** Sequence of the collective in its group. */
  readonly sequence: number
  readonly fingerprint: Fingerprint
}

/** Whether a rank has entered an epoch: 0 if it has not, 1 if its header is equal, 2 if it differs. */
export type SlotEntry = 0 | 1 | 2

/**
 * Buffers that the ranks of one host publish for each other to read. For each collective on shared
 * memory, every rank publishes one buffer. These collectives of a group are its *epochs*, numbered
 * from 1 modulo 2^32.
 *
 * A small buffer is copied to a slot. For each of the first groups of a world, a rank has two slots
 * and alternates between them. A published buffer thus stays until two epochs later. A large buffer
 * is exposed in place. It stays until its rank knows that all other ranks have read it, or until
 * its rank withdraws it. Peers are world ranks.
 */
export interface SharedSlots {
  /** Groups with ids below this number have slots. */
  readonly groups: number
  /** Groups with ids below this number can expose buffers. */
  readonly exposingGroups: number
  readonly slotBytes: number
  /** Whether this rank waits for publications. Other ranks must then wake it when it sleeps. */
  isAwaited: boolean
  /** Whether this rank and a peer can read each other's publications. */
  reaches(peer: number): boolean
  /** Copies bytes from offset `at` to this rank's slot, and wakes sleeping readers. */
  publish(group: number, epoch: number, header: SlotHeader, at: number, bytes: number): void
  /** Exposes the buffer at offset `at` to other ranks, and wakes sleeping readers. */
  expose(group: number, epoch: number, header: SlotHeader, at: number): void
  /**
   * Compares a peer's header in an epoch with `header`. The epoch is one of this rank's last two. With
   * `spins`, waits briefly if a spare core is available.
   */
  entryOf(peer: number, group: number, epoch: number, header: SlotHeader, spins: boolean): SlotEntry
  /**
   * Whether a peer has completed `steps` steps in a group. With `spins`, waits briefly if a spare
   * core is available.
   */
  hasCompleted(peer: number, group: number, steps: number, spins: boolean): boolean
  headerOf(peer: number, group: number, epoch: number): SlotHeader
  /** Returns the offset in this heap of the slot of any rank, including this rank. */
  slotOf(peer: number, group: number, epoch: number): number
  /** Returns the offset in the peer's heap of its exposed buffer. */
  exposedAt(peer: number, group: number, epoch: number): number
  /**
   * Tells the other ranks how many steps this rank has completed in a group, modulo 2^32, and wakes
   * sleeping ranks.
   */
  advance(group: number, steps: number): void
  /** Tells the other ranks that the buffer which this rank exposed in an epoch may have changed. */
  withdraw(group: number, epoch: number): void
  hasWithdrawn(peer: number, group: number, epoch: number): boolean
}
