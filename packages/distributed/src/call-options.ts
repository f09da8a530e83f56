import type { DType } from './dtype.ts'
import type { AlgorithmName } from './operation.ts'
import type { ReduceOp } from './reduction.ts'

/** Options of every operation. */
export interface CallOptions {
  /** Milliseconds until ERR_TSR_OPERATION_TIMEOUT. Default: the time-out of the group. */
  readonly timeout?: number
  /**
   * The dtype of the buffers. An array of `alloc`, or a part of one, defaults to the dtype it was
   * allocated for. Any other array defaults to the dtype of its class, for example uint8 for a
   * Uint8Array. A Uint16Array that is not from `alloc` may hold float16 or bfloat16, so it needs
   * this option.
   */
  readonly dtype?: DType
  /** A signal that aborts the operation, which then fails with ERR_TSR_OPERATION_ABORTED. */
  readonly signal?: AbortSignal | undefined
  /** Prefix of the messages of the operation's errors, for example the name of a parameter. */
  readonly label?: string
}

/** Options of sends and receives. */
export interface MessageOptions extends CallOptions {
  /**
   * Tag of the message, from 0 to 2^31 - 1. A receive matches a send with the same tag. Messages
   * with the same sender, receiver and tag match in order. Default 0.
   */
  readonly tag?: number
}

/** Options of collectives. */
export interface CollectiveOptions extends CallOptions {
  /**
   * The algorithm to use, the same on all ranks. Default `auto`: chosen by the size of the buffer
   * and the number of ranks.
   */
  readonly algorithm?: AlgorithmName
}

/** Options of collectives that combine the elements of several ranks. */
export interface ReduceOptions extends CollectiveOptions {
  /** How to combine elements. Default `sum`. */
  readonly op?: ReduceOp
  /**
   * Combines the elements in rank order, ((r0 + r1) + r2) + ..., so that the result is bitwise the
   * same for every algorithm, transport and topology. An `algorithm` with another order is
   * replaced. All ranks must pass the same value.
   */
  readonly deterministic?: boolean
}
