import type { SpanRecorder } from '@tsrun/telemetry'
import type { LinkStatistics } from './diagnosis/link-counters.ts'
import type { BlockingCalls } from './blocking-calls.ts'
import type { AnyTypedArray, DType, TypedArrayOf } from './dtype.ts'
import type { GroupRelations } from './group-relations.ts'
import type { AlgorithmName } from './operation.ts'

import type { ReduceOp } from './reduction.ts'
import type { WorkTiming } from './ticket.ts'

export type { WorkTiming } from './ticket.ts'

export interface CallOptions {
  /** Milliseconds until ERR_TSR_OPERATION_TIMEOUT; default: the group's time-out. */
  readonly timeout?: number
  /**
   * What the buffers hold. Default: the dtype that `alloc` made them for, also of parts of such an
   * array; of other arrays that of their type. A Uint8Array is uint8 then; a Uint16Array needs
   * this option, for it may be float16 or bfloat16.
   */
  readonly dtype?: DType
  readonly signal?: AbortSignal
  /** Stands first in the operation's errors, for example a parameter's name. */
  readonly label?: string
}

export interface MessageOptions extends CallOptions {
  /** Messages match by peer and tag, in order; 0 to 2^31 - 1, default 0. */
  readonly tag?: number
}

export interface CollectiveOptions extends CallOptions {
  /** The same on all ranks. Default `auto`: chosen by size and number of ranks. */
  readonly algorithm?: AlgorithmName
}

export interface ReduceOptions extends CollectiveOptions {
  /** Default `sum`. */
  readonly op?: ReduceOp
  /**
   * Combines the elements in the order of the ranks, ((r0 + r1) + r2) + ..., so that the result is
   * the same bits whatever algorithm, transport or topology there is. An `algorithm` that combines
   * in another order makes way for one that does. All ranks of the call must agree on it.
   */
  readonly deterministic?: boolean
}

export interface MonitoredBarrierOptions extends CallOptions {
  /**
   * Rank 0 waits until the time-out for those that may still come, also when a rank has left the
   * job, and names all that are missing. Default false: a rank that has left ends the wait at once.
   */
  readonly waitAllRanks?: boolean
}

/** Where a message comes from: a rank, or any other rank of the group (`'any'` or null). */
export type Source = number | 'any' | null

/** A message for `batchIsendIrecv`. */
export type BatchedMessage =
  | {
      readonly op: 'send'
      readonly buffer: AnyTypedArray
      readonly peer: number
      readonly tag?: number
    }
  | {
      readonly op: 'recv'
      readonly buffer: AnyTypedArray
      readonly peer: Source
      readonly tag?: number
    }

/** A value and the rank that it comes from. */
export interface ReceivedObject {
  readonly value: unknown
  readonly source: number
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
export interface ProcessGroup extends BlockingCalls, GroupRelations {
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
  /**
   * Writes numbers in another form, in SIMD: float32 times `factor` (default 1) as float16 or
   * bfloat16, to the nearest, ties to even; or these as float32. Arrays of `alloc`, or parts of such.
   *
   * @throws ERR_TSR_BUFFER, ERR_TSR_ARGUMENT when lengths or dtypes do not fit
   */
  convert(to: AnyTypedArray, from: AnyTypedArray, factor?: number): void

  send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work
  /**
   * Resolves to the rank that the message came from. From any source it takes the first message of
   * its tag that no receive before it has taken, of the other ranks.
   */
  recv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Work<number>
  /** Same as `send`, under torch's name. */
  isend(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work
  /** Same as `recv`, under torch's name. */
  irecv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Work<number>
  /**
   * Starts all these messages, in this order; a work for each. When one is refused, none is started.
   */
  batchIsendIrecv(messages: readonly BatchedMessage[], options?: CallOptions): Work<unknown>[]
  broadcast(buffer: AnyTypedArray, root: number, options?: CollectiveOptions): Work
  /** The result is in `buffer` on `root`; elsewhere `buffer` holds partial results afterwards. */
  reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Work
  allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Work
  /**
   * One all-reduce of several buffers of one dtype, for many small ones: they are packed, so that
   * there is one operation. The same lengths in the same order on all ranks.
   */
  allReduceCoalesced(buffers: readonly AnyTypedArray[], options?: ReduceOptions): Work
  /** `input` [size * n] is reduced; rank r gets slice r in `output` [n]. `input` is kept. */
  reduceScatter(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): Work
  /** Concatenates every rank's `input` [n] into `output` [size * n]. */
  allGather(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): Work
  /**
   * Concatenates inputs of different lengths: `counts[r]` elements from rank r, the same list on all
   * ranks. `output` has as many elements as their sum.
   */
  allGatherV(
    output: AnyTypedArray,
    input: AnyTypedArray,
    counts: readonly number[],
    options?: CollectiveOptions,
  ): Work
  /** Concatenates every rank's `input` [n] into `output` [size * n] of `root`; null elsewhere. */
  gather(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    root: number,
    options?: CollectiveOptions,
  ): Work
  /** Gathers inputs of different lengths; `output` and `counts` on `root`, null elsewhere. */
  gatherV(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): Work
  /** Slice r of `input` [size * n] of `root` goes to `output` [n] of rank r; null elsewhere. */
  scatter(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    root: number,
    options?: CollectiveOptions,
  ): Work
  /** Scatters slices of different lengths; `input` and `counts` on `root`, null elsewhere. */
  scatterV(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): Work
  /** Slice j of rank i's `input` [size * n] becomes slice i of rank j's `output` [size * n]. */
  allToAll(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): Work
  /**
   * All-to-all with slices of different lengths: `inputCounts[j]` elements of `input` go to rank j,
   * `outputCounts[i]` elements of `output` come from rank i.
   */
  allToAllV(
    output: AnyTypedArray,
    input: AnyTypedArray,
    outputCounts: readonly number[],
    inputCounts: readonly number[],
    options?: CollectiveOptions,
  ): Work
  barrier(options?: CollectiveOptions): Work
  /**
   * A barrier that names the ranks that have not come when its time is up: rank 0 waits for all,
   * fails with ERR_TSR_BARRIER_MISSING, and tells the others. They wait up to twice the time.
   */
  monitoredBarrier(options?: MonitoredBarrierOptions): Work

  sendObject(value: unknown, to: number, options?: MessageOptions): Work
  recvObject(from: number, options?: MessageOptions): Work<unknown>
  recvObject(from: 'any' | null, options?: MessageOptions): Work<ReceivedObject>
  /** `value` of `root`, on every rank. */
  broadcastObject<T>(value: T, root: number, options?: CallOptions): Work<T>
  /** Every rank's `value`, in rank order. */
  allGatherObject<T>(value: T, options?: CallOptions): Work<T[]>
  /** Every rank's `value`, in rank order, on `root`; undefined elsewhere. */
  gatherObject<T>(value: T, root: number, options?: CallOptions): Work<T[] | undefined>
  /** `values[r]` of `root` on rank r; null elsewhere. */
  scatterObject<T>(values: readonly T[] | null, root: number, options?: CallOptions): Work<T>
  /** `values[j]` goes to rank j; the result holds what came from each rank. */
  allToAllObject<T>(values: readonly T[], options?: CallOptions): Work<T[]>

  /**
   * What has gone over the links to the other ranks of the group so far, in all groups together, as
   * of the last operation that ended.
   */
  linkStatistics(): LinkStatistics[]

  /** Puts the step, and the loss, on the status page, for `tsrun ps`: two stores. */
  reportProgress(progress: { readonly step: number; readonly loss?: number }): void

  /**
   * From now on every operation of this rank, in any group, becomes a span of `recorder` when its
   * end is seen: `collective`, `send` or `recv` from the moment the engine took it up, `waited`
   * milliseconds of which its peers were not there yet, and the rest transfer. Undefined: no more.
   */
  recordSpans(recorder: SpanRecorder | undefined): void

  /**
   * Writes this rank's flight recorder, the last operations of all its groups, to
   * `<directory>/rank-<rank>.jsonl`; `tsrun flight <directory>` compares those of all ranks.
   *
   * @param directory - default: TSRUN_FLIGHT_DIR, which `tsrun` sets
   * @returns the path of the file
   * @throws ERR_TSR_ARGUMENT when no folder is known, ERR_TSR_FLIGHT_DIRECTORY
   */
  dumpFlight(directory?: string): string

  /** Leaves the group; its operations fail from now on. Waits for the operations under way. */
  destroy(): Promise<void>
}
