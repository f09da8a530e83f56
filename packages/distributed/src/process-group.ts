import type { SpanRecorder } from './record/spans.ts'
import type {
  CallOptions,
  CollectiveOptions,
  MessageOptions,
  ReduceOptions,
} from './call-options.ts'
import type { LinkStatistics } from './diagnosis/journal.ts'
import type { AnyTypedArray, DType, TypedArrayOf } from './dtype.ts'
import type { PersistentOperation } from './persistent-operation.ts'
import type { WorkTiming } from './ticket.ts'

export type { WorkTiming } from './ticket.ts'

/** The source of a receive: a rank, or any other rank of the group (`'any'` or null). */
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

/** A value, and the rank that has sent it. */
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
  /** When the phases of the operation began; undefined until it has completed. */
  readonly timing: WorkTiming | undefined
}

/**
 * The two forms of each call. `allReduce` is the asynchronous form: it starts the operation and
 * returns its `Work`. `allReduceSync` is the synchronous form: it blocks the thread until the
 * operation is done and returns its result.
 */
export type CallForm = 'async' | 'sync'

/** The return type of a call with a result of type `T`. */
export type Returned<Form extends CallForm, T = void> = Form extends 'async' ? Work<T> : T

/**
 * The messages and collectives, in one form. The methods of `ProcessGroup` and the functions on the
 * default group take their types from here.
 */
export interface GroupCalls<Form extends CallForm> {
  send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Returned<Form>
  /**
   * Receives a message; the result is the rank of the sender. A receive from any source takes the
   * first message with its tag that no earlier receive has taken, from any other rank.
   */
  recv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Returned<Form, number>
  broadcast(buffer: AnyTypedArray, root: number, options?: CollectiveOptions): Returned<Form>
  /** The result is in `buffer` on `root`; elsewhere `buffer` holds partial results afterwards. */
  reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Returned<Form>
  /** Reduces `buffer` over all ranks and leaves the same result on each of them. */
  allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Returned<Form>
  /**
   * Reduces several buffers of one dtype in one operation; small buffers are packed together. All
   * ranks pass the same lengths in the same order.
   */
  allReduceCoalesced(buffers: readonly AnyTypedArray[], options?: ReduceOptions): Returned<Form>
  /** Reduces `input` [size * n]; rank r gets slice r in `output` [n]. `input` is unchanged. */
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
   * Concatenates inputs of different lengths: `counts[r]` elements from rank r. All ranks pass the
   * same `counts`, and the length of `output` is their sum.
   */
  allGatherV(
    output: AnyTypedArray,
    input: AnyTypedArray,
    counts: readonly number[],
    options?: CollectiveOptions,
  ): Returned<Form>
  /** Concatenates every rank's `input` [n] into `output` [size * n] on `root`. Other ranks pass null. */
  gather(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    root: number,
    options?: CollectiveOptions,
  ): Returned<Form>
  /**
   * Sends slice r of `root`'s `input` [size * n] to `output` [n] of rank r. Other ranks pass null
   * as `input`.
   */
  scatter(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    root: number,
    options?: CollectiveOptions,
  ): Returned<Form>
  /** Copies slice j of rank i's `input` [size * n] to slice i of rank j's `output` [size * n]. */
  allToAll(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): Returned<Form>
  /**
   * Exchanges slices of different lengths: `inputCounts[j]` elements of `input` go to rank j, and
   * `outputCounts[i]` elements of `output` come from rank i.
   */
  allToAllV(
    output: AnyTypedArray,
    input: AnyTypedArray,
    outputCounts: readonly number[],
    inputCounts: readonly number[],
    options?: CollectiveOptions,
  ): Returned<Form>
  /** Waits until all ranks of the group have called `barrier`. */
  barrier(options?: CollectiveOptions): Returned<Form>
  /**
   * A barrier whose error names the missing ranks. Rank 0 waits for all ranks until the time-out,
   * then fails with ERR_TSR_BARRIER_MISSING and notifies the other ranks, which wait up to twice as
   * long.
   */
  monitoredBarrier(options?: CallOptions): Returned<Form>

  /** Sends any value that MessagePack can encode. Use it for control data, not for tensors. */
  sendObject(value: unknown, to: number, options?: MessageOptions): Returned<Form>
  /** The result is the value, or a `ReceivedObject` if `from` is any source. */
  recvObject<From extends Source>(
    from: From,
    options?: MessageOptions,
  ): Returned<Form, From extends number ? unknown : ReceivedObject>
  /** The result is the `value` of `root` on every rank. */
  broadcastObject<T>(value: T, root: number, options?: CallOptions): Returned<Form, T>
  /** The result is every rank's `value`, in rank order. */
  allGatherObject<T>(value: T, options?: CallOptions): Returned<Form, T[]>
  /** The result is every rank's `value` in rank order on `root`, and undefined elsewhere. */
  gatherObject<T>(value: T, root: number, options?: CallOptions): Returned<Form, T[] | undefined>
  /** The result is `root`'s `values[r]` on rank r. Other ranks pass null. */
  scatterObject<T>(
    values: readonly T[] | null,
    root: number,
    options?: CallOptions,
  ): Returned<Form, T>
}

type SyncForms = {
  [Name in keyof GroupCalls<'sync'> as `${Name}Sync`]: GroupCalls<'sync'>[Name]
}

/** The synchronous calls of `ProcessGroup`. */
export interface BlockingCalls extends SyncForms {
  /**
   * Runs a batch of messages and waits for all of them. Returns the source of each receive, and
   * undefined for each send.
   */
  batchIsendIrecvSync(
    messages: readonly BatchedMessage[],
    options?: CallOptions,
  ): (number | undefined)[]
}

type PersistentForms = {
  [
    Name in
      | 'send'
      | 'broadcast'
      | 'allReduce'
      | 'reduceScatter'
      | 'allGather'
      | 'barrier' as `${Name}Init`
  ]: (...args: Parameters<GroupCalls<'async'>[Name]>) => PersistentOperation
}

/** Prepared operations. Their arguments are as in `GroupCalls`. */
export interface PersistentCalls extends PersistentForms {
  recvInit(buffer: AnyTypedArray, from: number, options?: MessageOptions): PersistentOperation
}

/** Options of the calls that make groups and therefore wait for other ranks. */
export interface JoinOptions {
  /** Milliseconds until the wait fails. Default: the time-out of the group. */
  readonly timeout?: number
  /** Aborts the wait. Decisions that the ranks have already made stay valid. */
  readonly signal?: AbortSignal | undefined
}

/** Options of `newGroup`. */
export interface NewGroupOptions extends JoinOptions {
  /** Name of the group in errors and logs; the same on all members. Default: the list of ranks. */
  readonly name?: string
  /** Default time-out of the group's operations, and of making it, in milliseconds. */
  readonly timeout?: number
}

/** How a group relates to the world and to other groups. */
export interface GroupRelations {
  /**
   * How often `reconfigure` has rebuilt the world, from 0. In a process that replaces a lost rank,
   * it is above 0.
   */
  readonly generation: number
  /** Converts a rank of this group to a rank of the world. @throws ERR_TSR_RANK_RANGE */
  globalRank(rank: number): number
  /** Converts a rank of the world to a rank of this group. @throws ERR_TSR_RANK_RANGE */
  groupRank(worldRank: number): number
  /**
   * Makes a group of some ranks of this group. Only the members call it, all with the same list. The
   * order of the list is the rank order of the new group. Different groups may be made in any order.
   *
   * @throws ERR_TSR_GROUP_MEMBERS, ERR_TSR_TIMEOUT when the lowest rank does not call it,
   * ERR_TSR_ABORTED, ERR_TSR_TOO_MANY_GROUPS
   */
  newGroup(ranks: readonly number[], options?: NewGroupOptions): Promise<ProcessGroup>
  /**
   * Splits the group like MPI_Comm_split: ranks with the same colour form a group, ordered by key
   * and then by rank. All ranks of the group call it.
   *
   * @param color - an integer, or null to join no group
   * @param key - default: the rank in this group
   * @returns undefined for colour null
   */
  split(
    color: number | null,
    key?: number,
    options?: NewGroupOptions,
  ): Promise<ProcessGroup | undefined>
  /**
   * After a rank is lost, makes a group of the remaining ranks in their present order, like
   * MPIX_Comm_shrink. All pending operations of this group fail. Ranks that did not notice the loss
   * therefore also call `shrink`. The ranks agree through the store, even if they noticed different
   * losses or lose more ranks meanwhile. If two ranks have lost the connection to each other, only
   * one of them stays. A rank that has not called `shrink` before the time-out counts as lost.
   *
   * @throws ERR_TSR_EXCLUDED on a rank that the others count as lost; ERR_TSR_STORE_* when the store
   *   is gone
   */
  shrink(options?: NewGroupOptions): Promise<ProcessGroup>
  /**
   * After a rank is lost, rebuilds the whole world once the lost ranks were restarted. The
   * restarted processes call `initProcessGroup`; all survivors call `reconfigure` on any group of
   * the world. Every group of the old world ends, and its undelivered messages are dropped.
   *
   * @returns the group of all ranks, which replaces the old world as the default group
   * @throws ERR_TSR_TIMEOUT naming the missing ranks; `reconfigure` may then be called again
   */
  reconfigure(options?: JoinOptions): Promise<ProcessGroup>
}

/**
 * A set of ranks that exchange messages. Buffers are typed arrays. Arrays from `alloc` are in the
 * arena and are sent without a copy; all other arrays are copied through the arena. Do not touch a
 * buffer while an operation uses it. All ranks call the same collectives in the same order.
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
   * The rank after this one; the last rank wraps around to 0. In a mesh, it is the neighbour along
   * the axis. A pipeline detects its last stage by `rank === size - 1`.
   */
  readonly next: number
  /** The rank before this one; rank 0 wraps around to the last. */
  readonly previous: number

  /** Allocates a zero-filled array in the arena; free it with `free`. @throws ERR_TSR_ARENA_EXHAUSTED */
  alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D]
  /**
   * Like `alloc`, but with arbitrary contents, for buffers that are overwritten anyway.
   *
   * @throws ERR_TSR_ARENA_EXHAUSTED
   */
  allocUnsafe<D extends DType>(dtype: D, length: number): TypedArrayOf[D]
  free(buffer: AnyTypedArray): void
  /**
   * Converts floating-point numbers with SIMD instructions. A float32 input is multiplied by
   * `factor` (default 1). The output is float16 or bfloat16 (rounded to nearest, ties to even), or
   * float32, which may be the input itself. A float16 or bfloat16 input is converted to float32.
   * Both arguments are arrays from `alloc` or parts of them.
   *
   * @throws ERR_TSR_BUFFER, ERR_TSR_ARGUMENT when lengths or dtypes do not fit
   */
  convert(to: AnyTypedArray, from: AnyTypedArray, factor?: number): void

  /** Same as `send`, under torch's name. */
  isend: ProcessGroup['send']
  /** Same as `recv`, under torch's name. */
  irecv: ProcessGroup['recv']
  /**
   * Starts all messages in order and returns a `Work` for each. If one message is refused, none of
   * them starts.
   */
  batchIsendIrecv(messages: readonly BatchedMessage[], options?: CallOptions): Work<unknown>[]

  /**
   * Returns the traffic to each other rank of this group, up to the last completed operation. The
   * numbers of a link include the traffic of all groups.
   */
  linkStatistics(): LinkStatistics[]

  /**
   * Publishes the completed step and its loss for `tsrun ps` and the dashboard. `of` is the step at which
   * training ends. The call only writes numbers to shared memory.
   */
  reportProgress(progress: {
    readonly step?: number
    readonly loss?: number
    readonly of?: number
  }): void

  /**
   * Records this rank's work in all groups as spans of `recorder`; undefined stops recording.
   *
   * - An operation gives one span `collective`, `send` or `recv`, recorded when its completion is
   * noticed. The span starts when the engine accepts the operation. In its first `waited`
   * milliseconds the operation waits for peers; the remainder is the transfer.
   * - Starting an operation gives one span `call`. Blocking on it gives one span `wait`.
   * - Training over these groups adds the copies of values into and out of buffers. A trainer that is
   *   made afterwards also adds its passes and updates.
   */
  recordSpans(recorder: SpanRecorder | undefined): void

  /** The recorder that `recordSpans` has set. Callers can add their own spans to it. */
  readonly spans: SpanRecorder | undefined

  /**
   * Writes the last operations of all groups of this rank (its flight recorder) to
   * `<directory>/rank-<rank>.jsonl`. `tsrun flight <directory>` compares the files of all ranks.
   *
   * @param directory - default: TSRUN_FLIGHT_DIR, which `tsrun` sets
   * @returns the path of the file
   * @throws ERR_TSR_ARGUMENT when no folder is known, ERR_TSR_FLIGHT_DIRECTORY
   */
  dumpFlight(directory?: string): string

  /**
   * Waits for pending operations and leaves the group. Later calls throw. If nobody has waited for
   * an operation that writes to a buffer, the process then ends with ERR_TSR_NOT_AWAITED.
   */
  destroy(): Promise<void>

  /** The same as `destroy`, for `await using group = await initProcessGroup()`. */
  [Symbol.asyncDispose](): Promise<void>
}
