import type { Fingerprint } from '../operation.ts'

/** The collective to which a published buffer belongs. */
export interface SlotHeader {
  /** Sequence of the collective in its group. */
  readonly sequence: number
  readonly fingerprint: Fingerprint
}

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
  /**
   * Copies `bytes` bytes from offset `at` of the heap to this rank's slot, and wakes sleeping
   * readers.
   */
  publish(group: number, epoch: number, header: SlotHeader, at: number, bytes: number): void
  /**
   * Exposes the buffer at offset `at` of the heap for other ranks to read, and wakes sleeping
   * readers.
   */
  expose(group: number, epoch: number, header: SlotHeader, at: number): void
  /**
   * Whether a peer has entered an epoch. With `spins`, waits briefly if a spare core is available.
   */
  hasEntered(peer: number, group: number, epoch: number, spins: boolean): boolean
  /**
   * Whether a peer has completed `steps` steps in a group. With `spins`, waits briefly if a spare
   * core is available.
   */
  hasCompleted(peer: number, group: number, steps: number, spins: boolean): boolean
  /** Whether the buffer that a peer has published in an epoch belongs to this collective. */
  matches(peer: number, group: number, epoch: number, header: SlotHeader): boolean
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
