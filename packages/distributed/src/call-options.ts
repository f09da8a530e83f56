import type { DType } from './dtype.ts'
import type { AlgorithmName } from './operation.ts'
import type { ReduceOp } from './reduction.ts'

export interface CallOptions {
  /** Milliseconds until ERR_TSR_OPERATION_TIMEOUT. Default: the time-out of the group. */
  readonly timeout?: number
  /**
   * What the buffers hold. By default it follows from the array: an array of `alloc`, or a part of
   * one, has the dtype that it was allocated for, and any other array has the dtype of its type. A
   * Uint8Array is uint8 then. A Uint16Array may hold float16 or bfloat16, so it needs this option.
   */
  readonly dtype?: DType
  /** Aborts the operation: ERR_TSR_OPERATION_ABORTED. */
  readonly signal?: AbortSignal
  /** Precedes the message of the operation's errors, for example the name of a parameter. */
  readonly label?: string
}

export interface MessageOptions extends CallOptions {
  /** Messages match by peer and tag, in order. From 0 to 2^31 - 1, default 0. */
  readonly tag?: number
}

export interface CollectiveOptions extends CallOptions {
  /** The same on all ranks. Default `auto`: chosen by the size and the number of ranks. */
  readonly algorithm?: AlgorithmName
}

export interface ReduceOptions extends CollectiveOptions {
  /** Default `sum`. */
  readonly op?: ReduceOp
  /**
   * Combines the elements in the order of the ranks, ((r0 + r1) + r2) + ..., so that the result has
   * the same bits with every algorithm, transport and topology. An `algorithm` that combines in
   * another order is replaced by one that does not. The same on all ranks.
   */
  readonly deterministic?: boolean
}

export interface MonitoredBarrierOptions extends CallOptions {
  /**
   * Rank 0 waits until the time-out even after a rank has left the job, and then names all ranks
   * that are missing. Default false: a rank that has left ends the wait at once.
   */
  readonly waitAllRanks?: boolean
}
