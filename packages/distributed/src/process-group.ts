import type { SpanRecorder } from './record/spans.ts'
import type {
  CallOptions,
  CollectiveOptions,
  MessageOptions,
  MonitoredBarrierOptions,
  ReduceOptions,
} from './call-options.ts'
import type { LinkStatistics } from './diagnosis/link-counters.ts'
import type { AnyTypedArray, DType, TypedArrayOf } from './dtype.ts'
import type { PersistentOperation } from './persistent-operation.ts'
import type { WorkTiming } from './ticket.ts'

export type { WorkTiming } from './ticket.ts'

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

/** An operation that has been started. Await it, or block on it with `wait()`. */
export interface Work<T = void> extends PromiseLike<T> {
  /**
   * Blocks the calling thread until the operation is done.
   *
   * @throws the error of the operation; ERR_TSR_SYNC_UNSUPPORTED in the in-process world
   */
  wait(): T
  isCompleted(): boolean
  /** Position among the operations of its group. */
  readonly sequence: number
  /** Milliseconds from the call until now, or until the operation was done. */
  readonly elapsed: number
  /** Undefined until completed. */
  readonly timing: WorkTiming | undefined
}

/**
 * The two forms of each call. `allReduce` is the asynchronous form: it starts the operation and
 * returns its `Work`. `allReduceSync` is the synchronous form: it blocks the thread until the
 * operation is done and returns its result.
 */
export type CallForm = 'async' | 'sync'

/** What a call of one form returns for a result of type `T`. */
export type Returned<Form extends CallForm, T = void> = Form extends 'async' ? Work<T> : T

/**
 * Messages and collectives, in one of their forms. Each is declared here once: the methods of
 * `ProcessGroup` and the functions on the default group, in both forms, have these types.
 */
export interface GroupCalls<Form extends CallForm> {
  send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Returned<Form>
  /**
   * The result is the rank that the message came from. A receive from any source takes the first
   * message with its tag, from any other rank, that no earlier receive has taken.
   */
  recv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Returned<Form, number>
  broadcast(buffer: AnyTypedArray, root: number, options?: CollectiveOptions): Returned<Form>
  /** The result is in `buffer` on `root`; elsewhere `buffer` holds partial results afterwards. */
  reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Returned<Form>
  /** Reduces `buffer` over all ranks and leaves the same result on each of them. */
  allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Returned<Form>
  /**
   * One all-reduce of several buffers of one dtype. Many small buffers are packed, so that there is
   * one operation. The lengths and their order are the same on all ranks.
   */
  allReduceCoalesced(buffers: readonly AnyTypedArray[], options?: ReduceOptions): Returned<Form>
  /** `input` [size * n] is reduced; rank r gets slice r in `output` [n]. `input` is kept. */
  reduceScatter(
    output: AnyTypedArray,
    input: AnyTypedArray,
    options?: ReduceOptions,
  ): Returned<Form>
  /** Concatenates every rank's `input` [n] into `output` [size * n]. */
  allGather(
    output: AnyTypedArray,
    input: AnyTypedArray,
    options?: CollectiveOptions,
  ): Returned<Form>
  /**
   * Concatenates inputs of different lengths: `counts[r]` elements from rank r, the same list on all
   * ranks. `output` has as many elements as their sum.
   */
  allGatherV(
    output: AnyTypedArray,
    input: AnyTypedArray,
    counts: readonly number[],
    options?: CollectiveOptions,
  ): Returned<Form>
  /** Concatenates every rank's `input` [n] into `output` [size * n] of `root`; null elsewhere. */
  gather(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    root: number,
    options?: CollectiveOptions,
  ): Returned<Form>
  /** Gathers inputs of different lengths; `output` and `counts` on `root`, null elsewhere. */
  gatherV(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): Returned<Form>
  /** Slice r of `input` [size * n] of `root` goes to `output` [n] of rank r; null elsewhere. */
  scatter(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    root: number,
    options?: CollectiveOptions,
  ): Returned<Form>
  /** Scatters slices of different lengths; `input` and `counts` on `root`, null elsewhere. */
  scatterV(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): Returned<Form>
  /** Slice j of rank i's `input` [size * n] becomes slice i of rank j's `output` [size * n]. */
  allToAll(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): Returned<Form>
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
  ): Returned<Form>
  /** Done when all ranks have called it. */
  barrier(options?: CollectiveOptions): Returned<Form>
  /**
   * A barrier that names the ranks that are missing when the time-out ends. Rank 0 waits for all
   * ranks, fails with ERR_TSR_BARRIER_MISSING, and tells the others, which wait up to twice as long.
   */
  monitoredBarrier(options?: MonitoredBarrierOptions): Returned<Form>

  /** Sends any value that MessagePack can carry; for control data, not for tensors. */
  sendObject(value: unknown, to: number, options?: MessageOptions): Returned<Form>
  /** The result is the value; from any source, a `ReceivedObject`. */
  recvObject<From extends Source>(
    from: From,
    options?: MessageOptions,
  ): Returned<Form, From extends number ? unknown : ReceivedObject>
  /** `value` of `root`, on every rank. */
  broadcastObject<T>(value: T, root: number, options?: CallOptions): Returned<Form, T>
  /** Every rank's `value`, in rank order. */
  allGatherObject<T>(value: T, options?: CallOptions): Returned<Form, T[]>
  /** Every rank's `value`, in rank order, on `root`; undefined elsewhere. */
  gatherObject<T>(value: T, root: number, options?: CallOptions): Returned<Form, T[] | undefined>
  /** `values[r]` of `root` on rank r; null elsewhere. */
  scatterObject<T>(
    values: readonly T[] | null,
    root: number,
    options?: CallOptions,
  ): Returned<Form, T>
  /** `values[j]` goes to rank j; the result holds what came from each rank. */
  allToAllObject<T>(values: readonly T[], options?: CallOptions): Returned<Form, T[]>
}

type SyncForms = {
  [Name in keyof GroupCalls<'sync'> as `${Name}Sync`]: GroupCalls<'sync'>[Name]
}

/** The calls of `ProcessGroup` that return when the operation is done. */
export interface BlockingCalls extends SyncForms {
  /** Waits for all messages. The source of each receive, undefined for a send. */
  batchIsendIrecvSync(
    messages: readonly BatchedMessage[],
    options?: CallOptions,
  ): (number | undefined)[]
}

/** The operations that can be prepared. Arguments are those of the calls. */
export interface PersistentCalls {
  sendInit(buffer: AnyTypedArray, to: number, options?: MessageOptions): PersistentOperation
  recvInit(buffer: AnyTypedArray, from: number, options?: MessageOptions): PersistentOperation
  broadcastInit(
    buffer: AnyTypedArray,
    root: number,
    options?: CollectiveOptions,
  ): PersistentOperation
  allReduceInit(buffer: AnyTypedArray, options?: ReduceOptions): PersistentOperation
  reduceScatterInit(
    output: AnyTypedArray,
    input: AnyTypedArray,
    options?: ReduceOptions,
  ): PersistentOperation
  allGatherInit(
    output: AnyTypedArray,
    input: AnyTypedArray,
    options?: CollectiveOptions,
  ): PersistentOperation
  barrierInit(options?: CollectiveOptions): PersistentOperation
}

/** Options of the calls that make groups, and that wait for other ranks to do the same. */
export interface JoinOptions {
  /** Milliseconds until the wait is given up. Default: the time-out of the group. */
  readonly timeout?: number
  /** Ends the wait. What the ranks have agreed on before remains valid. */
  readonly signal?: AbortSignal
}

export interface NewGroupOptions extends JoinOptions {
  /** For errors and logs, the same on all members. Default: the ranks. */
  readonly name?: string
  /** Default time-out of the group's operations, and of making it, in milliseconds. */
  readonly timeout?: number
}

/** How a group relates to the world and to other groups. */
export interface GroupRelations {
  /**
   * How often `reconfigure` has rebuilt the world, 0 at first. A process that replaces a lost rank finds a
   * generation above 0.
   */
  readonly generation: number
  /** The rank in the world of a rank of this group. @throws ERR_TSR_RANK_RANGE */
  globalRank(rank: number): number
  /** The rank in this group of a rank of the world. @throws ERR_TSR_RANK_RANGE */
  groupRank(worldRank: number): number
  /**
   * Divides the group as MPI_Comm_split does: the ranks that give the same colour form a group,
   * ordered by key and then by rank. All ranks of the group call it.
   *
   * @param color - an integer, or null for a rank that is in none of the groups
   * @param key - default: the rank in this group
   * @returns undefined for colour null
   */
  split(
    color: number | null,
    key?: number,
    options?: NewGroupOptions,
  ): Promise<ProcessGroup | undefined>
  /**
   * After a loss: makes a group of the ranks that are still there, in the order of this one, as
   * MPIX_Comm_shrink does. This group ends, and its operations fail on every rank, so that ranks
   * that have not noticed the loss call `shrink` too. The ranks agree through the store, even when
   * they have seen different losses, and when more ranks are lost meanwhile. Of two ranks that have
   * lost the connection to each other only one can stay. A rank that has not called it when the
   * time-out ends counts as lost.
   *
   * @throws ERR_TSR_EXCLUDED on a rank that the others count as lost; ERR_TSR_STORE_* when the store
   *   is gone
   */
  shrink(options?: NewGroupOptions): Promise<ProcessGroup>
  /**
   * After a loss: rebuilds the whole world once the processes of the lost ranks were restarted. Those call
   * `initProcessGroup` as always; all survivors call this, on any group of the world. Every group of the
   * old world ends, and nothing that was sent there arrives in the new one.
   *
   * @returns the group of all ranks, which replaces the old world as the default group
   * @throws ERR_TSR_TIMEOUT naming the ranks that did not come; it may be called again then
   */
  reconfigure(options?: JoinOptions): Promise<ProcessGroup>
}

/**
 * A set of ranks that exchange messages. Buffers are typed arrays: those of `alloc` live in the
 * arena and travel without a copy, all others are staged. A buffer must not be touched while an
 * operation on it is under way. All ranks call the same collectives in the same order.
 *
 * Ranks in arguments and results are ranks *of the group*; `ranks` maps them to ranks of the world.
 */
export interface ProcessGroup
  extends GroupCalls<'async'>, BlockingCalls, PersistentCalls, GroupRelations {
  readonly name: string
  /** Rank of this process in the group. */
  readonly rank: number
  /** Number of ranks in the group. */
  readonly size: number
  /** Rank in the world of each member. */
  readonly ranks: readonly number[]
  /** Default time-out of the group's operations, in milliseconds. */
  readonly timeout: number
  /**
   * The rank after this one. After the last comes the first, as in a ring: `rank === size - 1` tells a
   * pipeline that it ends here. Along an axis of a mesh it is the neighbour on that axis.
   */
  readonly next: number
  /** The rank before this one. Before the first comes the last, as in a ring. */
  readonly previous: number

  /** A zero-filled array in the arena; free it with `free`. @throws ERR_TSR_ARENA_EXHAUSTED */
  alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D]
  /** As `alloc`, with arbitrary contents: for what is overwritten anyway. @throws as `alloc` */
  allocUnsafe<D extends DType>(dtype: D, length: number): TypedArrayOf[D]
  free(buffer: AnyTypedArray): void
  /**
   * Converts floating-point numbers with SIMD instructions: float32 times `factor` (default 1) to
   * float16 or bfloat16, rounded to the nearest with ties to even, or to float32, also in place; or
   * float16 or bfloat16 to float32. Both are arrays of `alloc`, or parts of such arrays.
   *
   * @throws ERR_TSR_BUFFER, ERR_TSR_ARGUMENT when lengths or dtypes do not fit
   */
  convert(to: AnyTypedArray, from: AnyTypedArray, factor?: number): void

  /** Same as `send`, under torch's name. */
  isend: ProcessGroup['send']
  /** Same as `recv`, under torch's name. */
  irecv: ProcessGroup['recv']
  /** Starts all messages in order and returns a work for each. When one is refused, none starts. */
  batchIsendIrecv(messages: readonly BatchedMessage[], options?: CallOptions): Work<unknown>[]

  /**
   * The traffic over the links to the other ranks of this group, of all groups together, up to the
   * last operation that has ended.
   */
  linkStatistics(): LinkStatistics[]

  /** Puts the step, and the loss, on the status page for `tsrun ps`; costs two stores. */
  reportProgress(progress: { readonly step: number; readonly loss?: number }): void

  /**
   * Records what this rank does, in any group, as spans of `recorder`. Every operation gives one once
   * its end is noticed: `collective`, `send` or `recv`, from the moment the engine took it up. For
   * `waited` milliseconds its peers were not there yet; the rest is transfer. Starting it is a `call`,
   * and blocking until it has ended a `wait`. Training over these groups adds the copies of values into
   * and out of buffers. Undefined ends the recording.
   */
  recordSpans(recorder: SpanRecorder | undefined): void

  /** The recorder of `recordSpans`, for whatever else this rank does. */
  readonly spans: SpanRecorder | undefined

  /**
   * Writes this rank's flight recorder, the last operations of all its groups, to
   * `<directory>/rank-<rank>.jsonl`; `tsrun flight <directory>` compares those of all ranks.
   *
   * @param directory - default: TSRUN_FLIGHT_DIR, which `tsrun` sets
   * @returns the path of the file
   * @throws ERR_TSR_ARGUMENT when no folder is known, ERR_TSR_FLIGHT_DIRECTORY
   */
  dumpFlight(directory?: string): string

  /** Leaves the group. Waits for the operations under way; later calls are refused. */
  destroy(): Promise<void>
}
