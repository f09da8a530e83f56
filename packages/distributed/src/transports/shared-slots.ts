import type { Fingerprint } from '../operation.ts'

/** What a rank says about the collective that it has published a buffer for. */
export interface SlotHeader {
  /** Sequence of the collective in its group. */
  readonly sequence: number
  readonly fingerprint: Fingerprint
}

/**
 * Where the ranks of one host publish buffers, which the others read. The publications of a group
 * are its epochs, counted from 1 modulo 2^32. A small buffer is copied to a slot: each rank has two
 * of them for each of the first groups of a world, and writes them alternately, so what is published
 * in an epoch stays until the epoch after the next. A large buffer is exposed where it is, and stays
 * until its rank has seen that all others have read it, or withdraws it. Peers are ranks of the world.
 */
export interface SharedSlots {
  /** Groups with ids below this number have slots. */
  readonly groups: number
  /** Groups with ids below this number can expose buffers. */
  readonly exposingGroups: number
  /** Bytes of a slot. */
  readonly slotBytes: number
  /** Whether this rank waits for what others publish, so that it must be woken when it sleeps. */
  isAwaited: boolean
  /** Whether this rank reads what the peer publishes, and the peer reads what this one does. */
  reaches(peer: number): boolean
  /** Copies `bytes` bytes at offset `at` of the heap to the own slot, and wakes sleeping readers. */
  publish(group: number, epoch: number, header: SlotHeader, at: number, bytes: number): void
  /** Lets the others read the buffer at offset `at` of the heap, and wakes sleeping readers. */
  expose(group: number, epoch: number, header: SlotHeader, at: number): void
  /** Whether a peer has entered an epoch. Spins briefly if a spare core is available. */
  awaitEpoch(peer: number, group: number, epoch: number): boolean
  /** Whether a peer has completed so many steps. Spins briefly if a spare core is available. */
  awaitSteps(peer: number, group: number, steps: number): boolean
  /** The last epoch of a peer. */
  epochOf(peer: number, group: number): number
  /** Whether what a peer has published in an epoch belongs to this collective. */
  matches(peer: number, group: number, epoch: number, header: SlotHeader): boolean
  headerOf(peer: number, group: number, epoch: number): SlotHeader
  /** Offset in this heap of what a rank, this one too, has published. */
  slotOf(peer: number, group: number, epoch: number): number
  /** Offset in the peer's heap of the buffer that it exposes. */
  exposedAt(peer: number, group: number, epoch: number): number
  /** Tells the others how many steps this rank has done in a group, modulo 2^32, and wakes them. */
  advance(group: number, steps: number): void
  /** The steps that a peer has done. */
  stepsOf(peer: number, group: number): number
  /** Tells the others that what this rank exposed in an epoch is no longer what it was. */
  withdraw(group: number, epoch: number): void
  hasWithdrawn(peer: number, group: number, epoch: number): boolean
}
