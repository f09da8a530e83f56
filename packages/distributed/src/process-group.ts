import type { AnyTypedArray, DType, TypedArrayOf } from './dtype.ts'

/** Reductions; `avg` is the sum times 1/size. */
export type ReduceOp = 'sum' | 'avg' | 'product' | 'min' | 'max'

export interface CallOptions {
  /** Milliseconds until ERR_TSR_OPERATION_TIMEOUT; default: the group's time-out. */
  readonly timeout?: number
  readonly signal?: AbortSignal
  /** Stands first in the operation's errors, for example a parameter's name. */
  readonly label?: string
}

export interface MessageOptions extends CallOptions {
  /** Messages match by peer and tag, in order; 0 to 2^31 - 1, default 0. */
  readonly tag?: number
}

export interface ReduceOptions extends CallOptions {
  /** Default `sum`. */
  readonly op?: ReduceOp
  /** Default: chosen by size and number of ranks. */
  readonly algorithm?: 'ring' | 'recursive-doubling' | 'halving-doubling'
}

/** When the phases of an operation began, in milliseconds of core's `monotonicNow()`. */
export interface WorkTiming {
  /** The engine took it up. */
  readonly posted: number
  /** The peer was there: first byte moved. Before it the operation waited, after it it transferred. */
  readonly started: number
  readonly completed: number
}

/** An operation under way. Await it, or block on it with `wait()`. */
export interface Work<T = void> extends PromiseLike<T> {
  /**
   * Blocks the calling thread until the operation is done.
   *
   * @throws what the operation failed with; ERR_TSR_SYNC_UNSUPPORTED in the in-process world
   */
  wait(): T
  isCompleted(): boolean
  /** Position among the operations of its group. */
  readonly sequence: number
  /** Milliseconds since it was called, or until it was done. */
  readonly elapsed: number
  /** Undefined until completed. */
  readonly timing: WorkTiming | undefined
}

/**
 * A set of ranks that exchange messages. Buffers are typed arrays: those of `alloc` live in the
 * arena and travel without a copy, all others are staged. A buffer must not be touched while an
 * operation on it is under way. All ranks call the same collectives in the same order.
 *
 * Ranks in arguments and results are ranks *of the group*; `ranks` maps them to ranks of the world.
 */
export interface ProcessGroup {
  readonly name: string
  /** Rank of this process in the group. */
  readonly rank: number
  /** Number of ranks in the group. */
  readonly size: number
  /** Rank in the world of each member. */
  readonly ranks: readonly number[]

  /** A zero-filled array in the arena; free it with `free`. @throws ERR_TSR_ARENA_EXHAUSTED */
  alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D]
  free(buffer: AnyTypedArray): void

  send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work
  recv(buffer: AnyTypedArray, from: number, options?: MessageOptions): Work
  /** Same as `send`, under torch's name. */
  isend(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work
  /** Same as `recv`, under torch's name. */
  irecv(buffer: AnyTypedArray, from: number, options?: MessageOptions): Work
  broadcast(buffer: AnyTypedArray, root: number, options?: CallOptions): Work
  /** The result is in `buffer` on `root`; elsewhere `buffer` holds partial results afterwards. */
  reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Work
  allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Work
  /** `input` [size * n] is reduced; rank r gets slice r in `output` [n]. `input` is kept. */
  reduceScatter(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): Work
  /** Concatenates every rank's `input` [n] into `output` [size * n]. */
  allGather(output: AnyTypedArray, input: AnyTypedArray, options?: CallOptions): Work
  barrier(options?: CallOptions): Work

  sendObject(value: unknown, to: number, options?: MessageOptions): Work
  recvObject(from: number, options?: MessageOptions): Work<unknown>
  /** `value` of `root`, on every rank. */
  broadcastObject<T>(value: T, root: number, options?: CallOptions): Work<T>
  /** Every rank's `value`, in rank order. */
  allGatherObject<T>(value: T, options?: CallOptions): Work<T[]>

  sendSync(buffer: AnyTypedArray, to: number, options?: MessageOptions): void
  recvSync(buffer: AnyTypedArray, from: number, options?: MessageOptions): void
  broadcastSync(buffer: AnyTypedArray, root: number, options?: CallOptions): void
  reduceSync(buffer: AnyTypedArray, root: number, options?: ReduceOptions): void
  allReduceSync(buffer: AnyTypedArray, options?: ReduceOptions): void
  reduceScatterSync(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): void
  allGatherSync(output: AnyTypedArray, input: AnyTypedArray, options?: CallOptions): void
  barrierSync(options?: CallOptions): void
  sendObjectSync(value: unknown, to: number, options?: MessageOptions): void
  recvObjectSync(from: number, options?: MessageOptions): unknown
  broadcastObjectSync<T>(value: T, root: number, options?: CallOptions): T
  allGatherObjectSync<T>(value: T, options?: CallOptions): T[]

  /** Leaves the group; its operations fail from now on. Waits for the operations under way. */
  destroy(): Promise<void>
}
