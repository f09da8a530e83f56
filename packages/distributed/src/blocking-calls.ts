import type { AnyTypedArray } from './dtype.ts'
import type {
  BatchedMessage,
  CallOptions,
  CollectiveOptions,
  MessageOptions,
  MonitoredBarrierOptions,
  ReceivedObject,
  ReduceOptions,
  Source,
} from './process-group.ts'

/** The calls of `ProcessGroup` that return when the operation is done. */
export interface BlockingCalls {
  sendSync(buffer: AnyTypedArray, to: number, options?: MessageOptions): void
  recvSync(buffer: AnyTypedArray, from: Source, options?: MessageOptions): number
  /** Waits for all of them. The source of each receive, undefined for a send. */
  batchIsendIrecvSync(
    messages: readonly BatchedMessage[],
    options?: CallOptions,
  ): (number | undefined)[]
  broadcastSync(buffer: AnyTypedArray, root: number, options?: CollectiveOptions): void
  reduceSync(buffer: AnyTypedArray, root: number, options?: ReduceOptions): void
  allReduceSync(buffer: AnyTypedArray, options?: ReduceOptions): void
  allReduceCoalescedSync(buffers: readonly AnyTypedArray[], options?: ReduceOptions): void
  reduceScatterSync(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): void
  allGatherSync(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): void
  allGatherVSync(
    output: AnyTypedArray,
    input: AnyTypedArray,
    counts: readonly number[],
    options?: CollectiveOptions,
  ): void
  gatherSync(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    root: number,
    options?: CollectiveOptions,
  ): void
  gatherVSync(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): void
  scatterSync(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    root: number,
    options?: CollectiveOptions,
  ): void
  scatterVSync(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): void
  allToAllSync(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): void
  allToAllVSync(
    output: AnyTypedArray,
    input: AnyTypedArray,
    outputCounts: readonly number[],
    inputCounts: readonly number[],
    options?: CollectiveOptions,
  ): void
  barrierSync(options?: CollectiveOptions): void
  monitoredBarrierSync(options?: MonitoredBarrierOptions): void
  sendObjectSync(value: unknown, to: number, options?: MessageOptions): void
  recvObjectSync(from: number, options?: MessageOptions): unknown
  recvObjectSync(from: 'any' | null, options?: MessageOptions): ReceivedObject
  broadcastObjectSync<T>(value: T, root: number, options?: CallOptions): T
  allGatherObjectSync<T>(value: T, options?: CallOptions): T[]
  gatherObjectSync<T>(value: T, root: number, options?: CallOptions): T[] | undefined
  scatterObjectSync<T>(values: readonly T[] | null, root: number, options?: CallOptions): T
  allToAllObjectSync<T>(values: readonly T[], options?: CallOptions): T[]
}
