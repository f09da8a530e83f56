import type { AnyTypedArray } from './dtype.ts'
import { defaultGroup } from './functions.ts'
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

/*
 * The blocking calls of `ProcessGroup` on the default group.
 */

export function sendSync(buffer: AnyTypedArray, to: number, options?: MessageOptions): void {
  defaultGroup('sendSync').sendSync(buffer, to, options)
}

export function recvSync(buffer: AnyTypedArray, from: Source, options?: MessageOptions): number {
  return defaultGroup('recvSync').recvSync(buffer, from, options)
}

export function batchIsendIrecvSync(
  messages: readonly BatchedMessage[],
  options?: CallOptions,
): (number | undefined)[] {
  return defaultGroup('batchIsendIrecvSync').batchIsendIrecvSync(messages, options)
}

export function broadcastSync(
  buffer: AnyTypedArray,
  root: number,
  options?: CollectiveOptions,
): void {
  defaultGroup('broadcastSync').broadcastSync(buffer, root, options)
}

export function reduceSync(buffer: AnyTypedArray, root: number, options?: ReduceOptions): void {
  defaultGroup('reduceSync').reduceSync(buffer, root, options)
}

export function allReduceSync(buffer: AnyTypedArray, options?: ReduceOptions): void {
  defaultGroup('allReduceSync').allReduceSync(buffer, options)
}

export function allReduceCoalescedSync(
  buffers: readonly AnyTypedArray[],
  options?: ReduceOptions,
): void {
  defaultGroup('allReduceCoalescedSync').allReduceCoalescedSync(buffers, options)
}

export function reduceScatterSync(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: ReduceOptions,
): void {
  defaultGroup('reduceScatterSync').reduceScatterSync(output, input, options)
}

export function allGatherSync(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: CollectiveOptions,
): void {
  defaultGroup('allGatherSync').allGatherSync(output, input, options)
}

export function allGatherVSync(
  output: AnyTypedArray,
  input: AnyTypedArray,
  counts: readonly number[],
  options?: CollectiveOptions,
): void {
  defaultGroup('allGatherVSync').allGatherVSync(output, input, counts, options)
}

export function gatherSync(
  output: AnyTypedArray | null,
  input: AnyTypedArray,
  root: number,
  options?: CollectiveOptions,
): void {
  defaultGroup('gatherSync').gatherSync(output, input, root, options)
}

export function gatherVSync(
  output: AnyTypedArray | null,
  input: AnyTypedArray,
  counts: readonly number[] | null,
  root: number,
  options?: CollectiveOptions,
): void {
  defaultGroup('gatherVSync').gatherVSync(output, input, counts, root, options)
}

export function scatterSync(
  output: AnyTypedArray,
  input: AnyTypedArray | null,
  root: number,
  options?: CollectiveOptions,
): void {
  defaultGroup('scatterSync').scatterSync(output, input, root, options)
}

export function scatterVSync(
  output: AnyTypedArray,
  input: AnyTypedArray | null,
  counts: readonly number[] | null,
  root: number,
  options?: CollectiveOptions,
): void {
  defaultGroup('scatterVSync').scatterVSync(output, input, counts, root, options)
}

export function allToAllSync(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: CollectiveOptions,
): void {
  defaultGroup('allToAllSync').allToAllSync(output, input, options)
}

export function allToAllVSync(
  output: AnyTypedArray,
  input: AnyTypedArray,
  outputCounts: readonly number[],
  inputCounts: readonly number[],
  options?: CollectiveOptions,
): void {
  defaultGroup('allToAllVSync').allToAllVSync(output, input, outputCounts, inputCounts, options)
}

export function barrierSync(options?: CollectiveOptions): void {
  defaultGroup('barrierSync').barrierSync(options)
}

export function monitoredBarrierSync(options?: MonitoredBarrierOptions): void {
  defaultGroup('monitoredBarrierSync').monitoredBarrierSync(options)
}

export function sendObjectSync(value: unknown, to: number, options?: MessageOptions): void {
  defaultGroup('sendObjectSync').sendObjectSync(value, to, options)
}

export function recvObjectSync(from: number, options?: MessageOptions): unknown
export function recvObjectSync(from: 'any' | null, options?: MessageOptions): ReceivedObject
export function recvObjectSync(from: Source, options?: MessageOptions): unknown {
  const group = defaultGroup('recvObjectSync')
  return from === 'any' || from === null
    ? group.recvObjectSync(from, options)
    : group.recvObjectSync(from, options)
}

export function broadcastObjectSync<T>(value: T, root: number, options?: CallOptions): T {
  return defaultGroup('broadcastObjectSync').broadcastObjectSync(value, root, options)
}

export function allGatherObjectSync<T>(value: T, options?: CallOptions): T[] {
  return defaultGroup('allGatherObjectSync').allGatherObjectSync(value, options)
}

export function gatherObjectSync<T>(
  value: T,
  root: number,
  options?: CallOptions,
): T[] | undefined {
  return defaultGroup('gatherObjectSync').gatherObjectSync(value, root, options)
}

export function scatterObjectSync<T>(
  values: readonly T[] | null,
  root: number,
  options?: CallOptions,
): T {
  return defaultGroup('scatterObjectSync').scatterObjectSync(values, root, options)
}

export function allToAllObjectSync<T>(values: readonly T[], options?: CallOptions): T[] {
  return defaultGroup('allToAllObjectSync').allToAllObjectSync(values, options)
}
