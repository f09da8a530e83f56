import type { Fingerprint } from '../operation.ts'

/** What a rank says of what it has laid out. */
export interface Notice {
  /** Sequence of the collective in its group. */
  readonly sequence: number
  readonly fingerprint: Fingerprint
}

/**
 * Where the ranks of one host lay small buffers out for the others to read in place. Each rank has
 * a board, with a lane for each of some groups. What is laid out in a lane takes turns, from 1; it
 * stays until the turn after the next. Peers are ranks of the world.
 */
export interface Board {
  readonly lanes: number
  /** Bytes that can be laid out in one turn. */
  readonly slotBytes: number
  /** Whether it can be read what the peer lays out, and the other way round. */
  reaches(peer: number): boolean
  /** Copies `bytes` bytes at offset `at` of the heap to the own board, and wakes who sleeps. */
  layOut(lane: number, turn: number, notice: Notice, at: number, bytes: number): void
  /** The last turn of a peer. */
  turnOf(peer: number, lane: number): number
  /** Whether a turn that has begun is one of this operation. */
  shows(peer: number, lane: number, turn: number, notice: Notice): boolean
  noticeOf(peer: number, lane: number, turn: number): Notice
  /** Offset in this heap of what a rank, this one too, has laid out. */
  slotOf(peer: number, lane: number, turn: number): number
}
