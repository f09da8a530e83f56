import type { Heap } from '../arena/heap.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { TuningTable } from './tuning-table.ts'

/** What an operation waits for: a message, a source for it, or what other ranks publish. */
export interface Waited {
  readonly done: boolean
  /** World ranks that it waits for, where no open message tells. */
  readonly missing?: () => readonly number[]
}

/** The body of an operation: a generator that yields whatever it has to wait for. */
export type Steps = Generator<Waited, void, void>

/** An operation under way: `next` continues it until it has to wait. */
export interface Resumable {
  next(): IteratorResult<Waited, void>
  /** Prepares it for another run, after its end, of the same operation at another position. */
  restart?(): void
  /** It has failed: from now on its buffers belong to the caller again. */
  abandon?(): void
}

/** One message under way in one direction. */
export interface Message extends Waited {
  /** Offset in the heap of the bytes to send, or of the place that receives them. */
  readonly at: number
  readonly bytes: number
}

/** A receive whose source may not be known yet. Done when it has a source. */
export interface MatchedReceive extends Waited {
  /** Group rank that the message comes from. */
  readonly source: number
  /** The message, once there is a source. */
  readonly message: Message | undefined
}

/** All members of a group share memory, no two do, or those of some hosts. */
export type Layout = 'together' | 'apart' | 'mixed'

/** What an algorithm sees of the engine: its group, messages within its operation, and scratch. */
export interface Channel {
  /** Rank of this process in the group. */
  readonly rank: number
  readonly size: number
  /** By rank: a number for each host; the ranks of one host share memory. */
  readonly hosts: readonly number[]
  readonly heap: Heap
  readonly kernels: Kernels
  /** For algorithms that choose others. */
  readonly tuning: TuningTable
  /**
   * Starts to send `bytes` bytes at offset `at` to a rank of the group.
   *
   * @param count - elements of the slice that the message belongs to, in uneven collectives
   */
  send(to: number, at: number, bytes: number, count?: number): Message
  /** Starts to receive; messages between two ranks match in the order of their calls. */
  receive(from: number, at: number, bytes: number, count?: number): Message
  /**
   * Starts to receive from a rank or from ANY_SOURCE. Receives of one tag are matched in the order
   * of their calls.
   */
  receiveMatched(from: number, at: number, bytes: number): MatchedReceive
  /** Discards the next message from a rank, whatever it is. */
  skip(from: number): void
  /** Offset of engine memory that is released when the operation ends. */
  scratch(bytes: number): number
}

/** Waits until a message is done: `yield* until(message)`. */
export function* until(waited: Waited): Generator<Waited, void, void> {
  while (!waited.done) yield waited
}

/** Waits until all are done. */
export function* untilAll(waited: readonly Waited[]): Generator<Waited, void, void> {
  for (const each of waited) yield* until(each)
}
