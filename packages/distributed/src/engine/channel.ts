import type { Ladders } from '../algorithms/ladders.ts'
import type { Heap } from '../arena/heap.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Waited } from './task.ts'
import type { Transfer } from './transfer.ts'
import type { Turn } from './turns.ts'

/** What an algorithm sees of the engine: its group, messages within its operation, and scratch. */
export interface Channel {
  /** Rank of this process in the group. */
  readonly rank: number
  readonly size: number
  /** By rank: which host; the ranks of one share memory. */
  readonly hosts: readonly number[]
  readonly heap: Heap
  readonly kernels: Kernels
  /** For algorithms that choose others; undefined: the built-in thresholds. */
  readonly ladders: Ladders | undefined
  /**
   * Starts to send `bytes` bytes at offset `at` to a rank of the group.
   *
   * @param count - elements of the slice that the message belongs to, in uneven collectives
   */
  send(to: number, at: number, bytes: number, count?: number): Transfer
  /** Starts to receive; messages between two ranks match in the order of their calls. */
  receive(from: number, at: number, bytes: number, count?: number): Transfer
  /** Starts a receive of a rank or of ANY_SOURCE, after those called before that may match too. */
  receiveInTurn(from: number, at: number, bytes: number): Turn
  /** Throws the next message from a rank away, whatever it is. */
  skip(from: number): void
  /** Offset of engine memory that lives until the operation ends. */
  scratch(bytes: number): number
}

/** Waits until a transfer is done: `yield* until(transfer)`. */
export function* until(waited: Waited): Generator<Waited, void, void> {
  while (!waited.done) yield waited
}

/** Waits until all are done. */
export function* untilAll(waited: readonly Waited[]): Generator<Waited, void, void> {
  for (const each of waited) yield* until(each)
}
