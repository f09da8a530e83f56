import type { Fingerprint } from '../operation.ts'

/** The collective for which a rank has published a buffer. */
export interface SlotHeader {
  /** Sequence of the collective in its group. */
  readonly sequence: number
  readonly fingerprint: Fingerprint
}

/**
 * Buffers that the ranks of one host publish for each other to read. Each publication of a group is
 * an epoch, numbered from 1 modulo 2^32.
 *
 * A small buffer is copied to a slot. Each rank has two slots for each of the first groups of a
 * world and alternates between them, so a publication stays until two epochs later. A large buffer
 * is exposed in place. It stays until its rank knows that all others have read it, or withdraws it.
 * Peers are world ranks.
 */
export interface SharedSlots {
  /** Groups with ids below this number have slots. */
  readonly groups: number
  /** Groups with ids below this number can expose buffers. */
  readonly exposingGroups: number
  /** Bytes of a slot. */
  readonly slotBytes: number
  /** Whether this rank waits for publications, so that others must wake it when it sleeps. */
  isAwaited: boolean
  /** Whether this rank and the peer read each other's publications. */
  reaches(peer: number): boolean
  /**
   * Copies `bytes` bytes at offset `at` of the heap to this rank's slot, and wakes sleeping
   * readers.
   */
  publish(group: number, epoch: number, header: SlotHeader, at: number, bytes: number): void
  /** Lets the others read the buffer at offset `at` of the heap, and wakes sleeping readers. */
  expose(group: number, epoch: number, header: SlotHeader, at: number): void
  /** Whether a peer has entered an epoch. `spins`: waits briefly if a spare core is available. */
  hasEntered(peer: number, group: number, epoch: number, spins: boolean): boolean
  /** Whether a peer has completed so many steps; `spins` as above. */
  hasCompleted(peer: number, group: number, steps: number, spins: boolean): boolean
  /** Whether what a peer has published in an epoch belongs to this collective. */
  matches(peer: number, group: number, epoch: number, header: SlotHeader): boolean
  headerOf(peer: number, group: number, epoch: number): SlotHeader
  /** Returns the offset in this heap of a rank's slot, including this rank's. */
  slotOf(peer: number, group: number, epoch: number): number
  /** Returns the offset in the peer's heap of its exposed buffer. */
  exposedAt(peer: number, group: number, epoch: number): number
  /** Tells the others how many steps this rank has done in a group, modulo 2^32, and wakes them. */
  advance(group: number, steps: number): void
  /** Tells the others that what this rank exposed in an epoch is no longer what it was. */
  withdraw(group: number, epoch: number): void
  hasWithdrawn(peer: number, group: number, epoch: number): boolean
}
