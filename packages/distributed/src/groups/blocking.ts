import type { SpanRecorder } from '@tsrun/telemetry'
import type { LinkStatistics } from '../diagnosis/link-counters.ts'
import type { AnyTypedArray, DType, TypedArrayOf } from '../dtype.ts'
import type {
  BatchedMessage,
  CallOptions,
  CollectiveOptions,
  MessageOptions,
  MonitoredBarrierOptions,
  ProcessGroup,
  ReceivedObject,
  ReduceOptions,
  Source,
  Work,
} from '../process-group.ts'
import { RelationForms } from './relation-forms.ts'

/** The forms of a group's calls that follow from the asynchronous ones. */
export abstract class CallForms extends RelationForms implements ProcessGroup {
  abstract alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D]
  abstract free(buffer: AnyTypedArray): void
  abstract convert(to: AnyTypedArray, from: AnyTypedArray, factor?: number): void
  abstract send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work
  abstract recv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Work<number>
  abstract batchIsendIrecv(
    messages: readonly BatchedMessage[],
    options?: CallOptions,
  ): Work<unknown>[]
  abstract broadcast(buffer: AnyTypedArray, root: number, options?: CollectiveOptions): Work
  abstract reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Work
  abstract allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Work
  abstract allReduceCoalesced(buffers: readonly AnyTypedArray[], options?: ReduceOptions): Work
  abstract reduceScatter(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): Work
  abstract allGather(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): Work
  abstract allGatherV(
    output: AnyTypedArray,
    input: AnyTypedArray,
    counts: readonly number[],
    options?: CollectiveOptions,
  ): Work
  abstract gather(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    root: number,
    options?: CollectiveOptions,
  ): Work
  abstract gatherV(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): Work
  abstract scatter(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    root: number,
    options?: CollectiveOptions,
  ): Work
  abstract scatterV(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): Work
  abstract allToAll(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): Work
  abstract allToAllV(
    output: AnyTypedArray,
    input: AnyTypedArray,
    outputCounts: readonly number[],
    inputCounts: readonly number[],
    options?: CollectiveOptions,
  ): Work
  abstract barrier(options?: CollectiveOptions): Work
  abstract monitoredBarrier(options?: MonitoredBarrierOptions): Work
  abstract sendObject(value: unknown, to: number, options?: MessageOptions): Work
  abstract recvObject(from: number, options?: MessageOptions): Work<unknown>
  abstract recvObject(from: 'any' | null, options?: MessageOptions): Work<ReceivedObject>
  abstract broadcastObject<T>(value: T, root: number, options?: CallOptions): Work<T>
  abstract allGatherObject<T>(value: T, options?: CallOptions): Work<T[]>
  abstract gatherObject<T>(value: T, root: number, options?: CallOptions): Work<T[] | undefined>
  abstract scatterObject<T>(
    values: readonly T[] | null,
    root: number,
    options?: CallOptions,
  ): Work<T>
  abstract allToAllObject<T>(values: readonly T[], options?: CallOptions): Work<T[]>
  abstract linkStatistics(): LinkStatistics[]
  abstract reportProgress(progress: { readonly step: number; readonly loss?: number }): void
  abstract recordSpans(recorder: SpanRecorder | undefined): void
  abstract dumpFlight(directory?: string): string
  abstract destroy(): Promise<void>

  isend(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
    return this.send(buffer, to, options)
  }

  irecv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Work<number> {
    return this.recv(buffer, from, options)
  }

  batchIsendIrecvSync(
    messages: readonly BatchedMessage[],
    options?: CallOptions,
  ): (number | undefined)[] {
    const works = this.batchIsendIrecv(messages, options)
    return works.map((work) => work.wait() as number | undefined)
  }

  recvObjectSync(from: number, options?: MessageOptions): unknown
  recvObjectSync(from: 'any' | null, options?: MessageOptions): ReceivedObject
  recvObjectSync(from: Source, options?: MessageOptions): unknown {
    return from === 'any' || from === null
      ? this.recvObject(from, options).wait()
      : this.recvObject(from, options).wait()
  }

  sendSync(buffer: AnyTypedArray, to: number, options?: MessageOptions): void {
    this.send(buffer, to, options).wait()
  }

  recvSync(buffer: AnyTypedArray, from: Source, options?: MessageOptions): number {
    return this.recv(buffer, from, options).wait()
  }

  broadcastSync(buffer: AnyTypedArray, root: number, options?: CollectiveOptions): void {
    this.broadcast(buffer, root, options).wait()
  }

  reduceSync(buffer: AnyTypedArray, root: number, options?: ReduceOptions): void {
    this.reduce(buffer, root, options).wait()
  }

  allReduceSync(buffer: AnyTypedArray, options?: ReduceOptions): void {
    this.allReduce(buffer, options).wait()
  }

  allReduceCoalescedSync(buffers: readonly AnyTypedArray[], options?: ReduceOptions): void {
    this.allReduceCoalesced(buffers, options).wait()
  }

  reduceScatterSync(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): void {
    this.reduceScatter(output, input, options).wait()
  }

  allGatherSync(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): void {
    this.allGather(output, input, options).wait()
  }

  allGatherVSync(
    output: AnyTypedArray,
    input: AnyTypedArray,
    counts: readonly number[],
    options?: CollectiveOptions,
  ): void {
    this.allGatherV(output, input, counts, options).wait()
  }

  gatherSync(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    root: number,
    options?: CollectiveOptions,
  ): void {
    this.gather(output, input, root, options).wait()
  }

  gatherVSync(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): void {
    this.gatherV(output, input, counts, root, options).wait()
  }

  scatterSync(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    root: number,
    options?: CollectiveOptions,
  ): void {
    this.scatter(output, input, root, options).wait()
  }

  scatterVSync(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): void {
    this.scatterV(output, input, counts, root, options).wait()
  }

  allToAllSync(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): void {
    this.allToAll(output, input, options).wait()
  }

  allToAllVSync(
    output: AnyTypedArray,
    input: AnyTypedArray,
    outputCounts: readonly number[],
    inputCounts: readonly number[],
    options?: CollectiveOptions,
  ): void {
    this.allToAllV(output, input, outputCounts, inputCounts, options).wait()
  }

  barrierSync(options?: CollectiveOptions): void {
    this.barrier(options).wait()
  }

  monitoredBarrierSync(options?: MonitoredBarrierOptions): void {
    this.monitoredBarrier(options).wait()
  }

  sendObjectSync(value: unknown, to: number, options?: MessageOptions): void {
    this.sendObject(value, to, options).wait()
  }

  broadcastObjectSync<T>(value: T, root: number, options?: CallOptions): T {
    return this.broadcastObject(value, root, options).wait()
  }

  allGatherObjectSync<T>(value: T, options?: CallOptions): T[] {
    return this.allGatherObject(value, options).wait()
  }

  gatherObjectSync<T>(value: T, root: number, options?: CallOptions): T[] | undefined {
    return this.gatherObject(value, root, options).wait()
  }

  scatterObjectSync<T>(values: readonly T[] | null, root: number, options?: CallOptions): T {
    return this.scatterObject(values, root, options).wait()
  }

  allToAllObjectSync<T>(values: readonly T[], options?: CallOptions): T[] {
    return this.allToAllObject(values, options).wait()
  }
}
