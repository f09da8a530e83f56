import type { Fingerprint } from '../operation.ts'

/** What a rank says about the collective that it has published a buffer for. */
export interface SlotHeader {
  /** Sequence of the collective in its group. */
  readonly sequence: number
  readonly fingerprint: Fingerprint
}

/**
 * Where the ranks of one host publish small buffers, which the others read in place. Each rank has
 * two slots for each of the first groups of a world, and writes them alternately. The publications
 * of a group are its epochs, counted from 1 modulo 2^32: what is published in an epoch stays until
 * the epoch after the next. Peers are ranks of the world.
 */
export interface SharedSlots {
  /** Groups with ids below this number have slots. */
  readonly groups: number
  /** Bytes of a slot. */
  readonly slotBytes: number
  /** Whether this rank reads the slots of the peer, and the peer reads those of this rank. */
  reaches(peer: number): boolean
  /** Copies `bytes` bytes at offset `at` of the heap to the own slot, and wakes sleeping readers. */
  publish(group: number, epoch: number, header: SlotHeader, at: number, bytes: number): void
  /** The last epoch of a peer. */
  epochOf(peer: number, group: number): number
  /** Whether what a peer has published in an epoch belongs to this collective. */
  matches(peer: number, group: number, epoch: number, header: SlotHeader): boolean
  headerOf(peer: number, group: number, epoch: number): SlotHeader
  /** Offset in this heap of what a rank, this one too, has published. */
  slotOf(peer: number, group: number, epoch: number): number
}
