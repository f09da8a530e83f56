import type { Heap } from '../arena/heap.ts'
import { dtypes } from '../dtype.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Operation, OperationName } from '../operation.ts'
import type { TuningTable } from './tuning-table.ts'

/**
 * An event that an operation waits for: a message has moved, a receive has found its source, or
 * another rank has published a buffer.
 */
export interface Waited {
  readonly done: boolean
  /** Returns the awaited world ranks. Omitted if pending messages already name them. */
  readonly missing?: () => readonly number[]
}

/** The body of an operation, as a generator. It yields the event that it waits for. */
export type Steps = Generator<Waited, void, void>

/** A running operation: `next` resumes it until it has to wait. */
export interface Resumable {
  next(): IteratorResult<Waited, void>
  /** Prepares another run, at another position in the group, after a run has ended. */
  restart?(): void
  /** Called when the operation has failed. Its buffers then belong to the caller again. */
  abandon?(): void
}

/** One pending message in one direction. */
export interface Message extends Waited {
  /** Offset in the heap of the data to send, or of the receive buffer. */
  readonly at: number
  readonly bytes: number
}

/** A receive whose source may not be known yet. The wait ends when the source is known. */
export interface MatchedReceive extends Waited {
  /** Group rank of the sender. */
  readonly source: number
  /** The message; undefined until the source is known. */
  readonly message: Message | undefined
}

/** Which members of a group share memory: all, none, or those on the same host. */
export type Layout = 'together' | 'apart' | 'mixed'

/**
 * The engine as an algorithm sees it: the group, and the messages and scratch memory of one
 * operation.
 */
export interface Channel {
  /** Rank of this process in the group. */
  readonly rank: number
  readonly size: number
  /** The host number of each rank; ranks of one host share memory. */
  readonly hosts: readonly number[]
  readonly heap: Heap
  readonly kernels: Kernels
  /** The tuning table, for algorithms that choose other algorithms. */
  readonly tuning: TuningTable
  /**
   * Starts to send `bytes` bytes, from offset `at` of the heap, to a rank of the group.
   *
   * @param count - elements of the slice that the message belongs to, in uneven collectives
   */
  send(to: number, at: number, bytes: number, count?: number): Message
  /** Starts to receive. Messages between two ranks match in call order. */
  receive(from: number, at: number, bytes: number, count?: number): Message
  /** Starts to receive from a rank or from ANY_SOURCE. Receives of one tag match in call order. */
  receiveMatched(from: number, at: number, bytes: number): MatchedReceive
  /** Discards the next message from a rank, whatever its size. */
  skip(from: number): void
  /** Allocates engine memory until the operation ends. Returns the offset in the heap. */
  scratch(bytes: number): number
}

/** Waits until a message is done. Algorithms call it by `yield* until(message)`. */
export function* until(waited: Waited): Generator<Waited, void, void> {
  while (!waited.done) yield waited
}

export function* untilAll(waited: readonly Waited[]): Generator<Waited, void, void> {
  for (const each of waited) yield* until(each)
}

/** A collective as a generator. It yields whenever it has to wait. */
export type Algorithm = (channel: Channel, operation: Operation) => Steps

/** An algorithm: its implementation of each operation that it supports. */
export type Algorithms = Partial<Record<OperationName, Algorithm>>

/** The arithmetic of one operation, on byte offsets and byte lengths. */
export interface Arithmetic {
  readonly bytesPerElement: number
  /** Computes out = a op b, element by element. */
  combine(out: number, a: number, b: number, bytes: number): void
  /** Finishes a complete sum: divides it for `avg`, otherwise does nothing. */
  finish(at: number, bytes: number): void
}

/** Returns the arithmetic of `operation`, which uses the kernels of `channel`. */
export function arithmeticOf(channel: Channel, operation: Operation): Arithmetic {
  const { dtype, reduction } = operation
  const { kernels, size } = channel
  const bytesPerElement = dtypes[dtype].bytes
  return {
    bytesPerElement,
    combine: (out, a, b, bytes) => {
      if (bytes > 0) kernels.combine(reduction, dtype, out, a, b, bytes / bytesPerElement)
    },
    finish: (at, bytes) => {
      if (reduction !== 'avg' || bytes === 0) return
      kernels.scale(dtype, at, bytes / bytesPerElement, 1 / size)
    },
  }
}

/**
 * Returns the other ranks in ascending order, starting after this rank and wrapping around. Each
 * rank thus starts with a different peer.
 */
export function otherRanks({ rank, size }: Pick<Channel, 'rank' | 'size'>): number[] {
  return Array.from({ length: size - 1 }, (_, i) => (rank + 1 + i) % size)
}

/**
 * Copies `count` slices of `slice` bytes from `from` to `to`, and rotates them: slice `first` becomes
 * the first.
 */
export function rotate(
  { kernels }: Pick<Channel, 'kernels'>,
  to: number,
  from: number,
  slice: number,
  count: number,
  first: number,
): void {
  const rest = (count - first) * slice
  kernels.copy(to, from + first * slice, rest)
  kernels.copy(to + rest, from, first * slice)
}
